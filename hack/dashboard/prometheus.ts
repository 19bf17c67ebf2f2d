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

// The requests of a Grafana with a Prometheus data source, and its use of the answers.

import {
  createDataFrame,
  type DataFrame,
  type FieldConfig,
  FieldColorModeId,
  FieldType,
  type Labels,
  rangeUtil,
  type TimeRange,
} from '@grafana/data';

export interface Target {
  expr: string;
  legendFormat: string;
}

export interface Variable {
  name: string;
  type: string;
  query: string;
}

interface Series {
  metric: Labels;
  values: Array<[time: number, value: string]>;
}

async function ask<T>(path: string, parameters: Record<string, string>): Promise<T> {
  const response = await fetch(`/api/v1/${path}?${new URLSearchParams(parameters)}`);
  const body = await response.json();
  if (body.status !== 'success') {
    throw new Error(`Prometheus answers ${path} ${JSON.stringify(parameters)}: ${body.error}`);
  }
  return body.data;
}

// selected returns the first value of each variable, as a dashboard that was just opened.
export async function selected(variables: Variable[]): Promise<Map<string, string>> {
  const values = new Map<string, string>();
  for (const { name, type, query } of variables) {
    if (type === 'datasource') {
      continue;
    }
    const [, selector, label] = query.match(/^label_values\((.+), *(\w+)\)$/) ?? [];
    if (!label) {
      throw new Error(`The variable ${name} cannot be read: ${query}`);
    }
    const [first] = await ask<string[]>(`label/${label}/values`, { 'match[]': selector });
    if (!first) {
      throw new Error(`The variable ${name} has no value: ${query}`);
    }
    values.set(name, first);
  }
  return values;
}

// expand replaces the variables of a query.
function expand(query: string, variables: Map<string, string>): string {
  return query.replaceAll(/\$(\w+)/g, (_, name) => {
    const value = variables.get(name);
    if (value === undefined) {
      throw new Error(`There is no variable ${name} in ${query}`);
    }
    return value;
  });
}

// legend names a series. Grafana leaves out labels that the series does not have, which never is
// what the author of a dashboard meant.
function legend(format: string, labels: Labels): string {
  return format.replaceAll(/{{ *(\w+) *}}/g, (_, label) => {
    if (!labels[label]) {
      throw new Error(`The legend ${format} names a label that ${JSON.stringify(labels)} lacks`);
    }
    return labels[label];
  });
}

// query returns a frame for each series that has points.
export async function query(
  targets: Target[],
  config: FieldConfig,
  range: TimeRange,
  width: number,
  scrapeInterval: number,
  variables: Map<string, string>
): Promise<DataFrame[]> {
  const { intervalMs } = rangeUtil.calculateInterval(range, width, `${scrapeInterval}s`);
  const step = intervalMs / 1000;
  const rate = `${Math.max(step + scrapeInterval, 4 * scrapeInterval)}s`;
  const start = Math.ceil(range.from.valueOf() / 1000 / step) * step;
  const end = Math.floor(range.to.valueOf() / 1000 / step) * step;
  const times = Array.from({ length: (end - start) / step + 1 }, (_, i) => start + i * step);

  const frames = await Promise.all(
    targets.map(async ({ expr, legendFormat }) => {
      const { result } = await ask<{ result: Series[] }>('query_range', {
        query: expand(expr, new Map([...variables, ['__rate_interval', rate]])),
        start: `${start}`,
        end: `${end}`,
        step: `${step}`,
      });
      return result.map(({ metric, values }) => {
        const points = new Map(values.map(([time, value]) => [time, Number(value)]));
        return createDataFrame({
          fields: [
            { name: 'Time', type: FieldType.time, values: times.map((time) => time * 1000) },
            {
              name: 'Value',
              type: FieldType.number,
              labels: metric,
              // The defaults of Grafana's panels, unless the dashboard says otherwise.
              config: {
                color: { mode: FieldColorModeId.PaletteClassic },
                custom: { lineWidth: 1, pointSize: 5 },
                ...config,
                displayNameFromDS: legend(legendFormat, metric),
              },
              values: times.map((time) => points.get(time) ?? null),
            },
          ],
        });
      });
    })
  );
  return frames.flat().filter((frame) => frame.fields[1].values.some(Number.isFinite));
}
