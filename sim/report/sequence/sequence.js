(function () {
  'use strict';
  var root = document.getElementById('seq');
  if (!root) { return; }
  var panels = Array.prototype.slice.call(root.querySelectorAll('.seq-panel'));
  var links = Array.prototype.slice.call(root.querySelectorAll('.seq-link'));
  var cameFrom = null;

  function target(link) { return link.getAttribute('href').slice(1); }

  function choose(id) {
    if (!panels.some(function (panel) { return panel.id === id; })) { return false; }
    panels.forEach(function (panel) { panel.hidden = panel.id !== id; });
    links.forEach(function (link) {
      var on = target(link) === id;
      link.classList.toggle('seq-on', on);
      if (on) { link.setAttribute('aria-current', 'true'); } else { link.removeAttribute('aria-current'); }
    });
    return true;
  }

  function go(id) {
    if (!choose(id)) { return; }
    var panel = document.getElementById(id);
    panel.focus({ preventScroll: true });
    var box = panel.getBoundingClientRect();
    if (box.top < 0 || box.top > window.innerHeight * 0.6) { panel.scrollIntoView({ block: 'start' }); }
  }

  function back() {
    var link = cameFrom;
    if (!link) { return; }
    link.focus({ preventScroll: true });
    link.scrollIntoView({ block: 'center' });
  }

  links.forEach(function (link) {
    link.addEventListener('click', function (event) {
      event.preventDefault();
      cameFrom = link;
      go(target(link));
    });
  });
  root.querySelectorAll('.seq-back').forEach(function (link) {
    link.addEventListener('click', function (event) {
      event.preventDefault();
      cameFrom = cameFrom || document.getElementById(target(link));
      back();
    });
  });
  root.querySelector('.seq-panels').addEventListener('keydown', function (event) {
    if (event.key === 'Escape') { back(); }
  });
  window.addEventListener('hashchange', function () { go(location.hash.slice(1)); });
  root.classList.add('seq-live');
  if (!choose(location.hash.slice(1))) { choose(root.getAttribute('data-chosen')); }
}());
