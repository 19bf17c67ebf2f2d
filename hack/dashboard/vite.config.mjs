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

import { cpSync } from 'node:fs';
import { defineConfig } from 'vite';

// assets puts icons and the font where Grafana's components look for them, below the page.
const assets = {
  name: 'assets',
  closeBundle() {
    cpSync('node_modules/@grafana/ui/dist/public', 'dist/public/build', { recursive: true });
    for (const weight of ['Regular', 'Medium']) {
      cpSync('node_modules/@fontsource-variable/inter/files/inter-latin-wght-normal.woff2', `dist/public/fonts/inter/Inter-${weight}.woff2`);
    }
  },
};

export default defineConfig({
  base: './', // Prometheus serves the page below /user.
  plugins: [assets],
});
