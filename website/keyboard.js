// Additions to the theme for users of a keyboard or a screen reader: scrollable areas can be focused, and have a name.
addEventListener('load', () => {
  for (const box of document.querySelectorAll('pre > code, .md-typeset__scrollwrap')) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
  document.querySelector('.md-search')?.setAttribute('aria-label', 'Search');
  document.querySelectorAll('.md-code__nav').forEach((buttons, at) => {
    buttons.setAttribute('aria-label', `Block of code ${at + 1}`);
  });
});
