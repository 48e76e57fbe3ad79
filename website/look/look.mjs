// Checks a built site in a real browser, and fails if a page has a problem that a reader would notice.
//
//   node look.mjs SITE SCREENSHOTS [PAGE ...]
//
// Every page is checked at the width of a desktop and of a phone: does it scroll sideways, is a table cut off, is a picture empty,
// does a script fail, does it load something that is missing or from another site, does it have the requested colours. The main
// pages, every report, and a sample of the generated pages also get the full check in both palettes: axe, and a screenshot for
// people. With PAGE (`ci/`, `requirements/lock.held/`), only these pages run, with the full check.
//
// It first checks planted.html, which has a fault of each kind: a fault that is not found there would not be found on the site.

import { mkdir, readFile, readdir } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

import puppeteer from 'puppeteer-core';

import { barriers, cutOff, emptyPictures, isDark, tooWide } from './in_page.mjs';
import { served } from './served.mjs';

const HERE = dirname(fileURLToPath(import.meta.url));
const AXE = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const { version: AXE_VERSION } = createRequire(import.meta.url)('axe-core/package.json');
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
const SCREENS = [
  { width: 1280, height: 900 },
  { width: 390, height: 844 },
];
const PALETTES = ['light', 'dark'];
/** Screens on which axe runs, which takes seconds: each width and each palette once. */
const AXE_LOOKS = new Set(['1280 light', '390 dark']);
/** Pages generated from one template: only a sample of them (`CLOSELY_OF_ALIKE`) gets the full check. */
const ALIKE = /^(requirements|files\/vectors)\/./;
const CLOSELY_OF_ALIKE = 10;
const KINDS = ['too wide', 'cut off', 'empty picture', 'barrier', 'script', 'not there', 'from elsewhere', 'palette'];
/** Limit for loading a page, and for axe on it, in ms. The longest page has some thousand links. */
const PATIENCE_MS = 300_000;

/** One page on one screen in one palette. Returns its findings: `{ kind, what }`. */
async function findingsOn(reader, base, path, { screen, palette, closely, picture }) {
  const page = await reader.newPage();
  const found = [];
  const note = (kind, whats) => found.push(...whats.map((what) => ({ kind, what })));
  page.setDefaultTimeout(PATIENCE_MS);
  page.on('pageerror', (error) => note('script', [error.message]));
  page.on('response', (response) => {
    // A browser asks for this picture by itself where a page names none.
    if (response.status() >= 400 && response.url() !== `${base}favicon.ico`) note('not there', [response.url()]);
  });
  page.on('request', (request) => {
    if (!/^(data|blob):/.test(request.url()) && !request.url().startsWith(base)) note('from elsewhere', [request.url()]);
  });
  await page.setViewport(screen);
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: palette }]);
  await page.goto(base + path, { waitUntil: 'load' });
  await page.evaluate(() => document.fonts.ready.then(() => new Promise(requestAnimationFrame)));
  note('too wide', await page.evaluate(tooWide));
  note('cut off', await page.evaluate(cutOff));
  note('empty picture', await page.evaluate(emptyPictures));
  if ((await page.evaluate(isDark)) !== (palette === 'dark')) note('palette', [`the reader asked for a ${palette} page`]);
  if (closely) await page.screenshot({ path: picture });
  if (closely && AXE_LOOKS.has(`${screen.width} ${palette}`)) {
    await page.evaluate(AXE);
    note('barrier', await page.evaluate(barriers));
  }
  await page.close();
  return found;
}

/** Every page below a folder, as a reader's address has it: `ci/`, `files/report.html`. */
async function pagesOf(site) {
  const files = await readdir(site, { recursive: true }).catch(() => []);
  const pages = files.filter((file) => file.endsWith('.html') && file !== '404.html');
  return pages.map((file) => file.replace(/(^|\/)index\.html$/, '$1')).sort();
}

/** The pages that get the full check: all that are written by hand, and an evenly spread sample of the generated ones. */
function looksClosely(pages) {
  const alike = pages.filter((page) => ALIKE.test(page));
  const every = Math.max(1, Math.floor(alike.length / CLOSELY_OF_ALIKE));
  const chosen = new Set(alike.filter((_, at) => at % every === 0).slice(0, CLOSELY_OF_ALIKE));
  return new Set(pages.filter((page) => !ALIKE.test(page) || chosen.has(page)));
}

function pictureName(path, palette, { width }) {
  return `${path.replace(/\W+/g, '-').replace(/^-|-$/g, '') || 'start'}-${palette}-${width}.png`;
}

/** Visits pages; returns every finding as a line, each once. */
async function look(browser, base, pages, close, screenshots) {
  const lines = new Set();
  // The site remembers the palette of its reader, so that there is one reader for each.
  const readers = new Map();
  for (const palette of PALETTES) readers.set(palette, await browser.createBrowserContext());
  for (const path of pages) {
    const closely = close.has(path);
    for (const screen of SCREENS) {
      for (const palette of closely ? PALETTES : PALETTES.slice(0, 1)) {
        const picture = join(screenshots, pictureName(path, palette, screen));
        const how = { screen, palette, closely, picture };
        for (const { kind, what } of await findingsOn(readers.get(palette), base, path, how)) {
          lines.add(`/${path} at ${screen.width} px, ${palette}: ${kind}: ${what}`);
        }
      }
    }
  }
  for (const reader of readers.values()) await reader.close();
  return [...lines];
}

/** The kinds of finding that the planted page does not bring to light: empty, if the look can be believed. */
async function blindSpots(browser, screenshots) {
  const { base, close } = await served(HERE);
  const path = 'planted.html';
  const lines = await look(browser, base, [path], new Set([path]), screenshots);
  close();
  return KINDS.filter((kind) => !lines.some((line) => line.includes(`: ${kind}: `)));
}

async function main([site, screenshots, ...only]) {
  if (!screenshots) throw new Error('which site, and where to put screenshots? node look.mjs SITE SCREENSHOTS [PAGE ...]');
  await mkdir(screenshots, { recursive: true });
  const all = await pagesOf(site);
  if (!all.includes('')) throw new Error(`${site}: no site is there; \`make site\` builds it`);
  const missing = only.filter((page) => !all.includes(page));
  if (missing.length) throw new Error(`${missing.join(', ')}: no such page; one is ${all[1]}`);
  const pages = only.length ? only : all;
  const close = only.length ? new Set(only) : looksClosely(all);
  // Chromium refuses to run with its sandbox as root, as CI does; every page is our own.
  const browser = await puppeteer.launch({ executablePath: CHROMIUM, args: ['--no-sandbox'], protocolTimeout: PATIENCE_MS });
  try {
    const blind = await blindSpots(browser, screenshots);
    if (blind.length) throw new Error(`the planted page shows no finding of the kind: ${blind.join(', ')}`);
    const { base, close: stop } = await served(resolve(site));
    const findings = await look(browser, base, pages, close, screenshots);
    stop();
    for (const line of findings) console.log(line);
    console.log(
      `${await browser.version()}, axe ${AXE_VERSION}: ${pages.length} pages at ${SCREENS.map(({ width }) => width).join(' and ')} px, ` +
        `${close.size} of them closely in both palettes; ${findings.length} findings; screenshots in ${screenshots}`,
    );
    return findings.length ? 1 : 0;
  } finally {
    await browser.close();
  }
}

try {
  process.exitCode = await main(process.argv.slice(2));
} catch (error) {
  console.error(`site-look: ${error.message}`);
  process.exitCode = 3;
}
