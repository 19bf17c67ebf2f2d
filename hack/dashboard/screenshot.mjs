/*
Copyright The Restaurant API Server Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

// Opens the page in Chromium, fails if a panel of the dashboard is empty or anything else is wrong,
// and takes pictures.
//
//   node screenshot.mjs URL DIRECTORY

import { readFile } from 'node:fs/promises';
import { chromium } from 'playwright-core';

const dashboard = JSON.parse(
  await readFile(new URL('../../artifacts/deploy/components/monitoring/apiserver.json', import.meta.url), 'utf8')
);
const [url, directory] = process.argv.slice(2);
const faults = [];

const browser = await chromium.launch({
  executablePath: '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync'],
});
const page = await browser.newPage({ viewport: { width: 1280, height: 1000 } });
page.setDefaultTimeout(300_000);
page.on('console', (message) => {
  if (['error', 'warning'].includes(message.type())) {
    faults.push(`The console has: ${message.text()} (${message.location().url})`);
  }
});
const failed = new Promise((resolve) => {
  page.on('pageerror', (error) => resolve(faults.push(`The page fails: ${error.stack}`)));
});
await page.goto(url);
await Promise.race([failed, page.waitForSelector('main[data-drawn]')]);

// coloured counts the pixels of a plot that belong to series: axes and the grid are grey.
const coloured = (canvas) => {
  const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let i = 0; i < data.length; i += 4) {
    const colour = data.subarray(i, i + 3);
    count += Math.max(...colour) - Math.min(...colour) > 60 ? 1 : 0;
  }
  return count;
};

const panelOf = ({ title }) => page.getByRole('region', { name: title, exact: true });
for (const panel of faults.length === 0 ? dashboard.panels : []) {
  const plot = panelOf(panel).locator('.uplot canvas');
  if ((await plot.count()) !== 1 || (await plot.evaluate(coloured)) < 100) {
    faults.push(`The panel "${panel.title}" is empty`);
    continue;
  }
  const text = await panelOf(panel).innerText();
  if (/{{|}}|NaN|undefined/.test(text)) {
    faults.push(`The panel "${panel.title}" says: ${text}`);
  }
  console.log(text.split('\n').filter(Boolean).join(' | '));
}

if (faults.length === 0) {
  // In two parts that fit on a screen when they are scaled down.
  const rows = [...new Set(dashboard.panels.map(({ gridPos }) => gridPos.y))].sort((a, b) => a - b);
  const middle = rows[Math.ceil(rows.length / 2)];
  const { y } = await panelOf(dashboard.panels.find(({ gridPos }) => gridPos.y === middle)).boundingBox();
  const { width, height } = await page.locator('main').boundingBox();
  const take = (number, clip) => page.screenshot({ path: `${directory}/dashboard-${number}.png`, fullPage: true, clip });
  await take(1, { x: 0, y: 0, width, height: y });
  await take(2, { x: 0, y, width, height: height - y });
}
await browser.close();
faults.forEach((fault) => console.error(fault));
process.exitCode = faults.length === 0 ? 0 : 1;
