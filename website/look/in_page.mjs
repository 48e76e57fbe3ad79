// Checks of the current page. They run in the browser, so each function is self-contained.

/** The parts that reach beyond the right edge of the screen, if the page scrolls sideways; at most three, the innermost. */
export function tooWide() {
  const page = document.scrollingElement;
  if (page.scrollWidth <= page.clientWidth) return [];
  const beyond = [...document.body.querySelectorAll('*')].filter(
    (part) => part.getBoundingClientRect().right > page.clientWidth + 1,
  );
  const innermost = beyond.filter((part) => !beyond.some((other) => other !== part && part.contains(other)));
  const names = innermost.slice(0, 3).map((part) => `<${part.localName}> ${part.textContent.trim().slice(0, 40)}`);
  return [`${page.scrollWidth} px wide on ${page.clientWidth} px: ${names.join('; ') || 'nothing that has a name'}`];
}

/** Tables, blocks of code and pictures that are wider than what holds them, where nothing lets the reader scroll. */
export function cutOff() {
  const scrolls = (box) => ['auto', 'scroll'].includes(getComputedStyle(box).overflowX);
  const hides = (box) => ['hidden', 'clip'].includes(getComputedStyle(box).overflowX);
  const cutter = (part) => {
    for (let box = part; box && box !== document.body; box = box.parentElement) {
      if (scrolls(box)) return null;
      if (hides(box) && part.getBoundingClientRect().right > box.getBoundingClientRect().right + 1) return box;
    }
    return null;
  };
  const shown = [...document.querySelectorAll('table, pre, img')].filter((part) => part.checkVisibility());
  return shown.filter(cutter).map((part) => `<${part.localName}> ${part.textContent.trim().slice(0, 40)}`);
}

/** Pictures that show nothing. */
export function emptyPictures() {
  return [...document.images]
    .filter((image) => image.checkVisibility() && image.complete && image.naturalWidth === 0)
    .map((image) => image.getAttribute('src'));
}

/** Whether the ground of the page is dark. A page that paints none is white. */
export function isDark() {
  const grounds = [document.body, document.documentElement].map((part) => getComputedStyle(part).backgroundColor);
  const painted = grounds.find((colour) => colour !== 'rgba(0, 0, 0, 0)') ?? 'rgb(255, 255, 255)';
  const [red, green, blue] = painted.match(/[\d.]+/g).map(Number);
  return red + green + blue < 384;
}

/** Serious and critical findings of axe, which was put into the page before: rule, how often, the first place. */
export async function barriers() {
  const { violations } = await axe.run(document, { resultTypes: ['violations'] });
  return violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(({ id, impact, nodes }) => {
      const [first] = nodes;
      const contrast = first.any.map(({ data }) => data?.contrastRatio).find(Boolean);
      const detail = contrast ? ` (contrast ${contrast})` : '';
      return `${id} (${impact}), ${nodes.length} times, first ${first.target.join(' ')}${detail}: ${first.html.slice(0, 120)}`;
    });
}
