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

"""Lists objects page by page, follows them, and prints a line for each.

Usage: follow.py KUBECONFIG GROUP VERSION NAMESPACE RESOURCE
"""

import sys
import time

import urllib3
from kubernetes import client, config, watch

config.load_kube_config(sys.argv[1])
list_objects = client.CustomObjectsApi().list_namespaced_custom_object
resource = sys.argv[2:]


def pages():
    """Prints all objects, and returns the version that they are of."""
    print("LISTING", flush=True)
    answer = list_objects(*resource, limit=2)
    while True:
        for item in answer["items"]:
            print("LISTED", item["metadata"]["name"], flush=True)
        page = answer["metadata"].get("continue")
        if not page:
            return answer["metadata"]["resourceVersion"]
        print("CONTINUED", flush=True)
        answer = list_objects(*resource, limit=2, _continue=page)


def changes(version):
    """Prints what has changed since a version, and returns the last one."""
    for event in watch.Watch().stream(list_objects, *resource, resource_version=version):
        version = event["object"]["metadata"]["resourceVersion"]
        print(event["type"], event["object"]["metadata"]["name"], flush=True)
        yield version


version = None
while True:
    try:
        version = version or pages()
        for version in changes(version):
            pass
    except client.exceptions.ApiException as error:
        print("FAILED", error.status, flush=True)
        if error.status == 410:
            version = None
        elif error.status not in (429, 503):
            raise
    except urllib3.exceptions.HTTPError as error:
        print("CUT", type(error).__name__, flush=True)
    time.sleep(0.1)
