"""discovery.py COMMAND...: runs a command beside a server that answers as an API server without objects does, as far as `kubectl
--dry-run=client` asks: which kinds of objects there are, and that an object does not exist. The command's KUBECONFIG names the server."""
import http.server, json, os, subprocess, sys, tempfile, threading

def kinds(version, *names):
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version, "resources": [
        {"name": name, "singularName": kind.lower(), "namespaced": namespaced, "kind": kind, "verbs": ["create", "get", "patch"]}
        for name, kind, namespaced in names]}

APPS = {"groupVersion": "apps/v1", "version": "v1"}
ANSWERS = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [{"name": "apps", "versions": [APPS], "preferredVersion": APPS}]},
    "/api/v1": kinds("v1", ("namespaces", "Namespace", False)),
    "/apis/apps/v1": kinds("apps/v1", ("daemonsets", "DaemonSet", True)),
}
NONE = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}

class Server(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        answer = ANSWERS.get(self.path.split("?")[0])
        text = json.dumps(answer or NONE).encode()
        self.send_response(200 if answer else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
with tempfile.TemporaryDirectory() as home:
    config = os.path.join(home, "config")
    with open(config, "w") as file:
        json.dump({"apiVersion": "v1", "kind": "Config", "current-context": "here", "users": [],
                   "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{server.server_address[1]}"}}],
                   "contexts": [{"name": "here", "context": {"cluster": "here", "user": ""}}]}, file)
    sys.exit(subprocess.run(sys.argv[1:], env=os.environ | {"KUBECONFIG": config, "HOME": home}).returncode)
