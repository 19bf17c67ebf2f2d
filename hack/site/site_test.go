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

// Package site shows the site of the documentation as readers see it.
package site

import (
	"fmt"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSite builds the site, and opens it in a browser. The front page is drawn, and the search
// leads to what readers look for, such as the question about namespaces that don't go.
func TestSite(t *testing.T) {
	if testing.Short() {
		t.Skip("long: the site is built and drawn in Chromium, by make test-site")
	}
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "mkdocs", "build", "--strict", "--site-dir", filepath.Join(dir, "site"))
	build.Dir = "../.."
	output, err := build.CombinedOutput()
	require.NoError(t, err, string(output))
	files := http.FileServer(http.Dir(filepath.Join(dir, "site")))

	t.Run("front page", func(t *testing.T) {
		server := httptest.NewServer(files)
		t.Cleanup(server.Close)
		picture := filepath.Join(dir, "front.png")
		output, err := browser(t, "--screenshot="+picture, "--window-size=1280,1024", server.URL).CombinedOutput()
		require.NoError(t, err, string(output))
		require.Greater(t, colours(t, picture), 10, "the front page is empty")
	})
	for query, page := range map[string]string{
		"namespace+stuck": "/faq/#a-namespace-is-stuck-in-terminating", "restore": "/operations/backup/", "APIService": "/apiservices/",
	} {
		t.Run(query, func(t *testing.T) {
			require.Regexp(t, "^"+page, search(t, files, query))
		})
	}
}

// search returns the path of the first result of a search in a browser.
func search(t *testing.T, files http.Handler, query string) string {
	t.Helper()
	result := make(chan string, 1)
	mux := http.NewServeMux()
	mux.Handle("/", files)
	mux.HandleFunc("/look", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, look) })
	mux.HandleFunc("/result", func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		select {
		case result <- string(text):
		default: // It has been found before.
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	require.NoError(t, browser(t, "--remote-debugging-port=0", server.URL+"/look?"+query).Start())
	select {
	case found := <-result:
		return found
	case <-time.After(time.Minute):
		require.Fail(t, "nothing has been found")
		return ""
	}
}

// look is a page that searches, and sends the first result.
const look = `<iframe id="site"></iframe><script>
const site = document.getElementById("site")
site.src = "/search.html?q=" + location.search.slice(1)
setInterval(() => {
	const first = site.contentDocument.querySelector("#mkdocs-search-results a")
	if (first) fetch("/result", {method: "POST", body: first.pathname + first.hash})
}, 100)
</script>`

// browser is a browser without a window, whose processes end with the test.
func browser(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	// A browser that has been killed may still write into it, which fails the removal of t.TempDir.
	profile, err := os.MkdirTemp("", "profile") //nolint:usetesting // See above.
	require.NoError(t, err)
	command := exec.Command("chromium", append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=" + profile}, args...)...) //nolint:noctx // The cleanup ends it.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	t.Cleanup(func() {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
		_ = command.Wait()
		_ = os.RemoveAll(profile)
	})
	return command
}

// colours counts the colours of a picture.
func colours(t *testing.T, path string) int {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	picture, err := png.Decode(file)
	require.NoError(t, err)
	seen := map[[3]uint32]bool{}
	for y := picture.Bounds().Min.Y; y < picture.Bounds().Max.Y; y++ {
		for x := picture.Bounds().Min.X; x < picture.Bounds().Max.X; x++ {
			r, g, b, _ := picture.At(x, y).RGBA()
			seen[[3]uint32{r, g, b}] = true
		}
	}
	return len(seen)
}
