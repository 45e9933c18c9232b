/** Pod Security over HTTP, held against what a real kube-apiserver 1.34.2 answered to the same requests. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { TestApiServer } from "@picolet/test/support/unit/embedded/api-server.ts";
import { POD_CASES } from "@picolet/test/support/unit/embedded/pod-security-cases.ts";
import { CONFIGURED, type ServerVariant } from "@picolet/test/support/unit/embedded/pod-security-flows.ts";
import {
  type Ask,
  answerOf,
  decidePods,
  type Recording,
  RUNTIME_CLASSES,
  runFlows,
} from "@picolet/test/support/unit/embedded/pod-security-recording.ts";
import { DEFAULT_POD_SECURITY, type PodSecurityConfiguration, parsePodSecurity } from "./pod-security-configuration.ts";

import { describeViolations, isLevel, PodSecurityEvaluator } from "./pod-security-standards.ts";

const recorded = JSON.parse(readFileSync("test/golden/pod-security/kubernetes-1.34.2.json", "utf8")) as Recording;

const noFile = (path: string): string => assert.fail(`${path} is read`);
const VARIANTS: Readonly<Record<ServerVariant, PodSecurityConfiguration>> = {
  default: DEFAULT_POD_SECURITY,
  configured: { ...DEFAULT_POD_SECURITY, ...parsePodSecurity(JSON.stringify(CONFIGURED), noFile) },
  "user-namespaces": { ...DEFAULT_POD_SECURITY, relaxesUserNamespaces: true },
};

async function startServer(variant: ServerVariant): Promise<{ server: TestApiServer; ask: Ask }> {
  const masters = ["system:masters"];
  const tokens = ["admin", "exempt"].map((name) => ({ token: name, user: name, groups: masters }));
  const server = await TestApiServer.start({ podSecurity: VARIANTS[variant], tokens });
  const ask: Ask = async ({ method, path, body, user = "admin", ...step }) => {
    const type = step.type ?? (method === "PATCH" ? "application/merge-patch+json" : "application/json");
    const answer = await server.ask(method, path, { body, type, token: user });
    return answerOf(answer.status, answer.body, answer.headers.get("warning"));
  };
  for (const step of RUNTIME_CLASSES) await ask(step);
  return { server, ask };
}

/** Pods that picolet answers otherwise, and why. */
const DIFFERENCES: Readonly<Record<string, RegExp>> = {
  // Boards run Linux: validation refuses options of Windows before admission sees them.
  "windowsHostProcess: pod": /^422 .*windowsOptions: Forbidden/,
  "windowsHostProcess: pod and containers": /^422 .*windowsOptions: Forbidden/,
};

test("each pod of the table is allowed and refused as Kubernetes does, in its words", async () => {
  const { server, ask } = await startServer("default");
  await using _ = server;
  const decided = await decidePods(ask);
  for (const [name, decisions] of Object.entries(recorded.pods)) {
    const difference = DIFFERENCES[name];
    if (difference === undefined) assert.deepEqual(decided[name], decisions, name);
    else for (const { answer } of decided[name] ?? []) assert.match(answer, difference, name);
  }
  assert.deepEqual(Object.keys(decided), Object.keys(recorded.pods));
});

test("the checks alone, without an API server, judge each pod of the table as Kubernetes does", () => {
  const evaluator = new PodSecurityEvaluator({ relaxesUserNamespaces: false });
  for (const { name, annotations = {}, spec } of POD_CASES) {
    for (const { answer, policies } of recorded.pods[name] ?? []) {
      for (const policy of policies) {
        const [level = "", version = ""] = policy.split(":");
        assert.ok(isLevel(level));
        const found = describeViolations(evaluator.evaluate({ annotations, spec }, { level, version }));
        const prefix = '403 pods "x" is forbidden: violates PodSecurity {policy}: ';
        assert.equal(found === "" ? "allowed" : prefix + found, answer, `${name}, ${policy}`);
      }
    }
  }
});

for (const variant of ["default", "configured", "user-namespaces"] as const) {
  test(`modes, updates, templates and namespaces are answered as Kubernetes does: ${variant}`, async () => {
    const { server, ask } = await startServer(variant);
    await using _ = server;
    for (const [name, answers] of Object.entries(await runFlows(variant, ask))) {
      assert.deepEqual(answers, recorded.flows[name], name);
    }
  });
}
