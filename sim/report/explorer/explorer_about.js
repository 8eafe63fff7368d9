(function () {
  'use strict';
  const held = document.getElementById('about-data');
  if (!held) { return; }
  const data = JSON.parse(held.textContent);
  const chooser = document.getElementById('about-user');
  const table = document.getElementById('about-table');
  const command = document.getElementById('about-command');
  const cells = Array.from(table.querySelectorAll('tbody td span'));
  data.users.forEach((user) => {
    const words = user[1] === user[0] ? user[0] : user[1] + ' (' + user[0] + ')';
    chooser.add(new Option(words, user[0], false, user[0] === chooser.dataset.first));
  });
  const show = () => {
    const user = data.users[chooser.selectedIndex];
    table.querySelector('[data-slot="user"]').textContent = chooser.options[chooser.selectedIndex].text;
    command.textContent = command.dataset.command + user[0];
    user[2].forEach((at, place) => {
      cells[place].className = data.told[at][0];
      cells[place].textContent = data.told[at][1];
    });
  };
  chooser.addEventListener('change', show);
  document.getElementById('about-choice').hidden = false;
  show();
}());
