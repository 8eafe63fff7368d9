(function () {
  'use strict';
  const live = document.getElementById('explorer-live');
  const table = document.getElementById('explorer-table');
  if (!live || !table) { return; }
  const answer = document.getElementById('explorer-answer');
  const boxes = Array.from(live.querySelectorAll('input[type=checkbox]'));
  const rows = new Map(Array.from(table.querySelectorAll('tr[data-set]'), (row) => [row.dataset.set, row]));
  const order = boxes.map((box) => box.value);
  const isUser = (name) => name.startsWith('user:');
  const slot = (place, name) => place.querySelector('[data-slot="' + name + '"]');
  const copies = (row, name) => Array.from(slot(row, name).childNodes, (node) => node.cloneNode(true));
  const keyOf = (names) => order.filter((name) => names.includes(name)).join('+');

  // what each member does alone, and what all servers do together, is left to their own rows
  const partsOf = (names) => {
    const servers = order.filter((name) => !isUser(name));
    const parts = names.map((name) => [name]);
    if (servers.length > 1 && servers.every((name) => names.includes(name))) { parts.push(servers); }
    return parts.filter((part) => part.length < names.length).map(keyOf).filter((key) => rows.has(key));
  };

  const showParts = (names) => {
    const place = slot(answer, 'parts');
    const inside = place.querySelector('div');
    const keys = partsOf(names);
    inside.replaceChildren();
    keys.forEach((key) => {
      const head = document.createElement('h4');
      head.append(...copies(rows.get(key), 'who'));
      const body = document.createElement('div');
      body.append(...copies(rows.get(key), 'attacks'));
      inside.append(head, body);
    });
    place.hidden = keys.length === 0;
  };

  const show = () => {
    const names = order.filter((name, at) => boxes[at].checked);
    const key = keyOf(names);
    const row = rows.get(key);
    const none = slot(answer, 'none');
    slot(answer, 'who').textContent = names.length ? key.split('+').join(' + ') : 'No party';
    answer.querySelector('.ask').hidden = names.length === 0;
    slot(answer, 'command').textContent = live.dataset.command + key;
    answer.querySelector('dl').hidden = !row;
    none.hidden = Boolean(row);
    none.textContent = names.length ? 'This set was not computed for this page: ask with the command.'
      : 'Tick at least one party.';
    if (row) {
      ['out', 'claimed', 'together', 'attacks'].forEach((name) => {
        slot(answer, name).replaceChildren(...copies(row, name));
      });
    }
    showParts(names);
  };

  boxes.forEach((box) => box.addEventListener('change', show));
  table.open = false;
  let was = false;
  window.addEventListener('beforeprint', () => { was = table.open; table.open = true; });
  window.addEventListener('afterprint', () => { table.open = was; });
  live.hidden = false;
  show();
}());
