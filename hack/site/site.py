# Copyright The Restaurant API Server Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

"""Makes pages of the repository a site: what is for its developers stays out, and the home begins as its README."""

import posixpath
import re

from mkdocs.structure.files import Files

LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?[)\s])")


def on_files(files, config):
    """Leaves out the laboratory, and faults of other projects."""
    return Files([file for file in files if not path_of(file).startswith(("lab/", "upstream/"))])


def on_page_markdown(markdown, page, config, files):
    """Replaces what is no file of the site by its address in the repository."""
    path = path_of(page.file)
    markdown = lead(markdown, posixpath.dirname(posixpath.join("docs", path)), posixpath.dirname(path), config, files)
    if path != "README.md":
        return markdown
    with open("README.md", encoding="utf-8") as readme:
        first_screen = readme.read().split("\n## ")[0]
    return lead(first_screen, "", "", config, files) + "\n" + markdown.replace("# Documentation", "## Documentation", 1)


def path_of(file):
    """Returns the path below docs."""
    return file.src_uri if hasattr(file, "src_uri") else file.src_path


def lead(markdown, folder, page_folder, config, files):
    """Leads links of a text in a folder of the repository to pages, as seen from a folder of them, or out of the site."""

    def replace(match):
        target = posixpath.normpath(posixpath.join(folder, match.group(2)))
        if target.startswith("docs/") and files.get_file_from_path(target[len("docs/"):]):
            return match.group(1) + posixpath.relpath(target[len("docs/"):], page_folder or ".") + match.group(3)
        return match.group(1) + config["repo_url"] + "/blob/main/" + target + match.group(3)

    return LINK.sub(replace, markdown)
