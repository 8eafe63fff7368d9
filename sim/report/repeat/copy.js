(function () {
  'use strict';
  const select = (code) => {
    const range = document.createRange();
    range.selectNodeContents(code);
    const chosen = window.getSelection();
    chosen.removeAllRanges();
    chosen.addRange(range);
  };
  document.querySelectorAll('pre > code').forEach((code) => {
    const pre = code.parentElement;
    const button = document.createElement('button');
    const wrap = document.createElement('div');
    button.type = 'button';
    button.className = 'copy only-screen';
    button.textContent = 'Copy';
    wrap.className = 'command';
    pre.replaceWith(wrap);
    wrap.append(pre, button);
    let wait = 0;
    const say = (words) => {
      button.textContent = words;
      window.clearTimeout(wait);
      wait = window.setTimeout(() => { button.textContent = 'Copy'; }, 2000);
    };
    button.addEventListener('click', () => {
      if (!navigator.clipboard) { select(code); say('Selected'); return; }
      navigator.clipboard.writeText(code.textContent).then(() => say('Copied'), () => { select(code); say('Selected'); });
    });
  });
}());
