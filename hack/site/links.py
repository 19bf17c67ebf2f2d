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

"""Leads links out of docs/ to the repository."""

import posixpath
import re

LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?[)\s])")


def on_page_markdown(markdown, page, config, files):
    """Replaces what is no file of the site by its address in the repository."""
    folder = posixpath.dirname(posixpath.join("docs", page.file.src_uri if hasattr(page.file, "src_uri") else page.file.src_path))

    def replace(match):
        target = posixpath.normpath(posixpath.join(folder, match.group(2)))
        inside = target.startswith("docs/") and files.get_file_from_path(target[len("docs/"):])
        if inside:
            return match.group(0)
        return match.group(1) + config["repo_url"] + "/blob/main/" + target + match.group(3)

    return LINK.sub(replace, markdown)
