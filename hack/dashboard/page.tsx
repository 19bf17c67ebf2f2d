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

// The dashboard, drawn with Grafana's components from what a Prometheus answers. The query of
// the page's URL has the times, from and to in milliseconds, and how often Prometheus scrapes, in
// seconds.

import { applyFieldOverrides, createTheme, type DataFrame, dateTime, ThemeContext } from '@grafana/data';
import { LegendDisplayMode } from '@grafana/schema';
import { GlobalStyles, PanelChrome, TimeSeries } from '@grafana/ui';
import { type ReactNode } from 'react';
import { flushSync } from 'react-dom';
import { createRoot } from 'react-dom/client';

import dashboard from '../../artifacts/deploy/components/monitoring/apiserver.json';
import { query, selected } from './prometheus';

const pageWidth = 1280;
const columns = 24;
const rowHeight = 30;
const gap = 8;

const theme = createTheme({ colors: { mode: 'light' } });
const parameters = new URLSearchParams(location.search);
const [from, to] = ['from', 'to'].map((name) => dateTime(Number(parameters.get(name))));
const range = { from, to, raw: { from, to } };

type Panel = (typeof dashboard.panels)[number];

// place returns where a panel is, in pixels.
function place({ x, y, w, h }: Panel['gridPos']) {
  const column = (pageWidth - gap) / columns;
  const row = rowHeight + gap;
  return { left: gap + x * column, top: y * row, width: w * column - gap, height: h * row - gap };
}

function Plot({ panel, frames }: { panel: Panel; frames: DataFrame[] }) {
  const { width, height, ...position } = place(panel.gridPos);
  return (
    <div style={{ position: 'absolute', ...position }}>
      <PanelChrome width={width} height={height} title={panel.title} description={panel.description}>
        {(width, height) =>
          frames.length === 0 ? (
            'No data'
          ) : (
            <TimeSeries
              frames={frames}
              width={width}
              height={height}
              timeRange={range}
              timeZone="utc"
              legend={{ showLegend: true, displayMode: LegendDisplayMode.List, placement: 'bottom', calcs: [] }}
            />
          )
        }
      </PanelChrome>
    </div>
  );
}

async function plot(panel: Panel, variables: Map<string, string>) {
  const { type, title, gridPos, fieldConfig, targets } = panel;
  if (type !== 'timeseries' || fieldConfig.overrides.length > 0) {
    throw new Error(`The panel ${title} is of a type, or has overrides, that this page cannot draw`);
  }
  const interval = Number(parameters.get('interval'));
  const frames = applyFieldOverrides({
    data: await query(targets, fieldConfig.defaults, range, place(gridPos).width, interval, variables),
    fieldConfig: { defaults: {}, overrides: [] },
    replaceVariables: (text) => text,
    theme,
    timeZone: 'utc',
  });
  return <Plot key={panel.id} panel={panel} frames={frames} />;
}

const main = document.querySelector('main')!;
const root = createRoot(main);
function render(content: ReactNode) {
  root.render(
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      {content}
    </ThemeContext.Provider>
  );
}

// The font first: text on a canvas does not wait for it.
flushSync(() => render(null));
await document.fonts.load('12px Inter');

const variables = await selected(dashboard.templating.list);
const plots = await Promise.all(dashboard.panels.map((panel) => plot(panel, variables)));
const bottom = Math.max(...dashboard.panels.map(({ gridPos: { y, h } }) => y + h));
flushSync(() =>
  render(
    <>
      <header style={{ padding: gap, display: 'flex', justifyContent: 'space-between' }}>
        <h4>{dashboard.title}</h4>
        <span>{[...variables].map(([name, value]) => `${name}: ${value}`).join(', ')}</span>
      </header>
      <div style={{ position: 'relative', width: pageWidth, height: bottom * (rowHeight + gap) }}>{plots}</div>
    </>
  )
);
// Legends take their room from the plots, which are drawn again then.
requestIdleCallback(() => (main.dataset.drawn = 'true'));
