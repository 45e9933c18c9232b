/** Stock kubectl, of both ends of what is supported, against the embedded API server. */
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { writeFileSync } from "node:fs";
import { after, test } from "node:test";
import { ensureInitialObjects } from "../../hub/embedded/controllers/bootstrap/initial-objects.ts";
import { type KubectlVersion, kubectlPath } from "../../scripts/install-kubectl.ts";
import { ADMIN_USER, TestApiServer } from "../support/api-server.ts";
import { TempFolder } from "../support/temp-folder.ts";
import { TlsAuthority } from "../support/tls-authority.ts";

const folder = new TempFolder();
const authority = new TlsAuthority();
const pair = authority.issueServer();
const server = await TestApiServer.start({
  tls: { certificate: pair.certificate, privateKey: pair.privateKey, clientCa: authority.ca },
});
after(async () => {
  await server[Symbol.asyncDispose]();
  folder[Symbol.dispose]();
});

await ensureInitialObjects(server.server.client(ADMIN_USER), new AbortController().signal);

const KUBECONFIG = folder.at("kubeconfig");
const cluster = { server: server.url, "certificate-authority-data": Buffer.from(authority.ca).toString("base64") };
writeFileSync(
  KUBECONFIG,
  JSON.stringify({
    apiVersion: "v1",
    kind: "Config",
    clusters: [{ name: "c", cluster }],
    users: ["admin", "joe"].map((token) => ({ name: token, user: { token } })),
    contexts: ["admin", "joe"].map((user) => ({ name: user, context: { cluster: "c", user } })),
    "current-context": "admin",
  }),
);

interface Said {
  readonly code: number;
  readonly text: string;
}

function kubectl(
  version: KubectlVersion,
  args: readonly string[],
  input = "",
  env: NodeJS.ProcessEnv = {},
): Promise<Said> {
  return new Promise((resolve) => {
    const options = { env: { ...process.env, KUBECONFIG, HOME: folder.path, ...env } };
    const child = execFile(kubectlPath(version), [...args], options, (error, stdout, stderr) => {
      resolve({ code: typeof error?.code === "number" ? error.code : error === null ? 0 : 1, text: stdout + stderr });
    });
    child.stdin?.end(input);
  });
}

const manifest = (name: string, data: object, labels: object = {}): string =>
  JSON.stringify({ apiVersion: "v1", kind: "ConfigMap", metadata: { name, labels }, data });

for (const version of ["1.20", "1.32"] as const) {
  const isNew = version === "1.32";
  const name = `map-${version.replace(".", "-")}`;
  const says = async (
    expected: RegExp,
    args: readonly string[],
    input?: string,
    env?: NodeJS.ProcessEnv,
  ): Promise<void> => {
    const { code, text } = await kubectl(version, args, input, env);
    assert.match(text, expected, args.join(" "));
    assert.equal(code, 0, `${args.join(" ")}: ${text}`);
  };
  const fails = async (expected: RegExp, args: readonly string[], input?: string): Promise<void> => {
    const { code, text } = await kubectl(version, args, input);
    assert.match(text, expected, args.join(" "));
    assert.notEqual(code, 0, args.join(" "));
  };

  test(`kubectl ${version} finds out what there is`, async () => {
    await says(/Server Version/, ["version"]);
    await says(/configmaps +cm +v1 +true +ConfigMap/, ["api-resources"]);
    await says(/daemonsets +ds +apps\/v1 +true +DaemonSet/, ["api-resources", "--api-group=apps"]);
    await says(/apps\/v1\n/, ["api-versions"]);
    await says(/is running at/, ["cluster-info"]);
    await says(/Name of the environment variable/, ["explain", "pod.spec.containers.env"]);
    await says(/containers\s+<\[\](Object|Container)>/i, ["explain", "ds.spec.template.spec"]);
    await says(/No resources found/, ["get", "pods"]);
    await fails(/doesn't have a resource type "nothings"/, ["get", "nothings"]);
  });

  test(`kubectl ${version} applies, shows differences, edits and removes`, async () => {
    await says(
      /configmap\/map-\S+ created \(server dry run\)/,
      ["apply", "--dry-run=server", "-f", "-"],
      manifest(name, {}),
    );
    await fails(/NotFound/, ["get", "cm", name]);
    await says(/created/, ["apply", "-f", "-"], manifest(name, { a: "1", b: "2" }, { v: version }));
    await says(/unchanged/, ["apply", "-f", "-"], manifest(name, { a: "1", b: "2" }, { v: version }));
    await fails(/^-\s+b: "2"$/m, ["diff", "-f", "-"], manifest(name, { a: "1" }, { v: version }));
    await says(/configured/, ["apply", "-f", "-"], manifest(name, { a: "new" }, { v: version }));
    await says(/^map\[a:new\]$/, ["get", "cm", name, "-o", "jsonpath={.data}"]).catch(() =>
      says(/^\{"a":"new"\}$/, ["get", "cm", name, "-o", "jsonpath={.data}"]),
    );
    await says(new RegExp(`^NAME +DATA +AGE\\n${name} +1 `), ["get", "cm", "-l", `v=${version}`]);
    await says(/labeled/, ["label", "cm", name, "x=1"]);
    await fails(/already has a value/, ["label", "cm", name, "x=2"]);
    await says(/annotated/, ["annotate", "cm", name, "note=text"]);
    await says(/edited/, ["edit", "cm", name], "", { EDITOR: "sed -i 's/a: new/a: edited/'" });
    await says(/patched/, ["patch", "cm", name, "-p", '{"data":{"c":"3"}}']);
    await says(/patched/, ["patch", "cm", name, "--type=json", "-p", '[{"op":"remove","path":"/data/c"}]']);
    await says(/replaced/, ["replace", "-f", "-"], manifest(name, { whole: "new" }));
    await says(/whole: new/, ["get", "cm", name, "-o", "yaml"]);
    await says(/Name: +map-[\s\S]*whole:/, ["describe", "cm", name]);
    await says(/deleted/, ["delete", "cm", name]);
    await says(/^$/, ["delete", "cm", name, "--ignore-not-found"]);
  });

  test(`kubectl ${version} creates from the command line`, async () => {
    await says(/namespace\/\S+ created/, ["create", "ns", `ns-${name}`]);
    await says(/configmap\/\S+ created/, ["create", "cm", name, "--from-literal=k=v"]);
    await fails(/already exists/, ["create", "cm", name]);
    await says(/secret\/\S+ created/, ["create", "secret", "generic", name, "--from-literal=k=v"]);
    await says(/^dg==$/, ["get", "secret", name, "-o", "jsonpath={.data.k}"]);
    await says(/serviceaccount\/\S+ created/, ["create", "sa", name]);
    await says(/role\S* created/, ["create", "role", name, "--verb=get,list", "--resource=configmaps"]);
    await says(/created/, ["create", "rolebinding", name, `--role=${name}`, `--serviceaccount=default:${name}`]);
    await says(/^yes/, ["auth", "can-i", "list", "cm", `--as=system:serviceaccount:default:${name}`]);
    await fails(/^no/, ["auth", "can-i", "delete", "cm", `--as=system:serviceaccount:default:${name}`]);
    if (isNew) await says(/^eyJ[\w-]+\.[\w-]+\.[\w-]+\n?$/, ["create", "token", name]);
    if (isNew) await says(/Username +admin/, ["auth", "whoami"]);
    await fails(/configmaps is forbidden: User "joe" cannot list resource "configmaps"/, [
      "get",
      "cm",
      "--context=joe",
    ]);
    await says(/deleted/, ["delete", "cm,secret,sa,role,rolebinding", name]);
  });

  test(`kubectl ${version} is told what is wrong with a manifest`, async () => {
    await fails(
      /unknown field "datta"/,
      ["apply", "-f", "-"],
      `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"datta":{}}`,
    );
    await says(
      /created/,
      ["apply", "--validate=false", "-f", "-"],
      `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x-${name}"},"datta":{}}`,
    );
    await fails(/metadata\.name: Invalid value: "Wrong"/, ["apply", "-f", "-"], manifest("Wrong", {}));
    await fails(
      /no matches for kind "Nothing"/,
      ["apply", "-f", "-"],
      `{"apiVersion":"v1","kind":"Nothing","metadata":{"name":"x"}}`,
    );
  });

  test(`kubectl ${version} applies on the server, and is told of conflicts`, async () => {
    const own = `ssa-${name}`;
    const as = (manager: string, ...more: readonly string[]): string[] => [
      "apply",
      "--server-side",
      `--field-manager=${manager}`,
      ...more,
      "-f",
      "-",
    ];
    await says(/serverside-applied/, as("one"), manifest(own, { a: "1" }));
    await fails(/conflict with "one".*\.data\.a/, as("two"), manifest(own, { a: "2" }));
    await says(/serverside-applied/, as("two", "--force-conflicts"), manifest(own, { a: "2" }));
    await says(/serverside-applied/, as("one"), manifest(own, { b: "1" }));
    await says(/a: "2"[\s\S]*b: "1"/, ["get", "cm", own, "-o", "yaml"]);
    // From apply at the client to apply on the server.
    const moved = `moved-${name}`;
    await says(/created/, ["apply", "-f", "-"], manifest(moved, { a: "1", b: "1" }));
    await says(
      /serverside-applied/,
      ["apply", "--server-side", "--force-conflicts", "-f", "-"],
      manifest(moved, { a: "2" }),
    );
  });

  test(`kubectl ${version} waits for what it deletes, and watches`, async () => {
    const held = {
      apiVersion: "v1",
      kind: "ConfigMap",
      metadata: { name: `held-${name}`, finalizers: ["example.com/x"] },
    };
    await says(/created/, ["create", "-f", "-"], JSON.stringify(held));
    const deleting = says(/deleted/, ["delete", "cm", held.metadata.name, "--timeout=30s"]);
    const waiting = says(/condition met/, ["wait", "--for=delete", `cm/${held.metadata.name}`, "--timeout=30s"]).catch(
      () => undefined,
    );
    await says(/patched/, [
      "patch",
      "cm",
      held.metadata.name,
      "--type=merge",
      "-p",
      '{"metadata":{"finalizers":null}}',
    ]);
    await Promise.all([deleting, waiting]);
    const watched = await kubectl(version, ["get", "ns", "-w", "--request-timeout=2s"]);
    assert.match(watched.text, /^NAME +STATUS +AGE\ndefault +Active/);
  });

  test(`kubectl ${version} pages through a long list`, async () => {
    const items = Array.from(
      { length: 25 },
      (_, n) => JSON.parse(manifest(`page-${n}-${name}`, {}, { page: name })) as unknown,
    );
    await says(/created/, ["apply", "-f", "-"], JSON.stringify({ apiVersion: "v1", kind: "List", items }));
    const { text } = await kubectl(version, ["get", "cm", "-l", `page=${name}`, "--chunk-size=4", "--no-headers"]);
    assert.equal(text.trim().split("\n").length, 25);
    await says(/deleted/, ["delete", "cm", "-l", `page=${name}`]);
  });
}
