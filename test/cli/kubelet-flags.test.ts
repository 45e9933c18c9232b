/** The kubelet's flags: each sets what its row says, and none of Kubernetes 1.34 is missing. */
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { test } from "node:test";
import {
  formatConfigurationProblem,
  type LoadConfigurationResult,
  loadConfiguration,
} from "@picolet/agent/config/configuration.ts";
import { CONFIGURATION_FIELDS } from "@picolet/agent/config/configuration-fields.ts";
import { kubeletFlagValues } from "@picolet/agent/config/kubelet-flag-values.ts";
import { type FlagForm, isSetting, KUBELET_FLAGS } from "@picolet/agent/config/kubelet-flags.ts";
import { parseArguments } from "@picolet/agent/main/node/agent-arguments.ts";
import { KUBELET_GROUP, PICOLET } from "@picolet/agent/main/node/agent-program.ts";
import { groupHelp } from "@picolet/protocol/command-line/help-text.ts";

const BOARD = { memoryBytes: 1_073_741_824, cpus: 4, maxPids: 4000, ephemeralStorageBytes: 2 ** 33 };

function load(line: readonly string[], file = ""): LoadConfigurationResult {
  return loadConfiguration(file, "board", BOARD, undefined, parseArguments(line, {}).kubelet?.settings);
}

/** A flag's text and the value that it becomes, with other flags and a file that it needs to be right. */
interface Case {
  readonly text: string;
  readonly value: unknown;
  readonly beside?: readonly string[];
  readonly file?: string;
}

const SWITCHED = (byDefault: boolean): Case => ({ text: String(!byDefault), value: !byDefault });
const SAME = (text: string): Case => ({ text, value: text });
const NUMBER = (value: number): Case => ({ text: String(value), value });
const SECONDS = (count: number): Case => ({ text: `${count}s`, value: count * 1000 });

const TLS_SUITES: Case = {
  text: "TLS_AES_128_GCM_SHA256,TLS_AES_256_GCM_SHA384",
  value: ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384"],
};

/** The expected value of each field, by flag. Every flag that sets something has one. */
const CASES: Readonly<Record<string, Case>> = {
  "pod-manifest-path": { text: "manifests", value: resolve("manifests") },
  "file-check-frequency": { text: "1m30s", value: 90_000 },
  "manifest-url": SAME("https://pods.example/set"),
  "manifest-url-header": { text: "A:one,B:two:three,A:four", value: { A: ["one", "four"], B: ["two:three"] } },
  "http-check-frequency": SECONDS(7),
  "sync-frequency": SECONDS(61),
  runonce: SWITCHED(false),
  "hostname-override": SAME("edge-7"),
  "node-labels": { text: "room=12,picolet.io/site=north", value: { room: "12", "picolet.io/site": "north" } },
  "register-node": SWITCHED(true),
  "register-with-taints": {
    text: "dedicated=camera:NoSchedule,slow:NoExecute,empty=:NoSchedule",
    value: [
      { key: "dedicated", value: "camera", effect: "NoSchedule" },
      { key: "slow", effect: "NoExecute" },
      { key: "empty", value: "", effect: "NoSchedule" },
    ],
  },
  "provider-id": SAME("rack://12/7"),
  "cloud-provider": SAME("external"),
  "node-status-update-frequency": SECONDS(15),
  "node-status-max-images": NUMBER(-1),
  "max-pods": NUMBER(30),
  "pods-per-core": NUMBER(5),
  "pod-cidr": SAME("10.1.0.0/24"),
  "resolv-conf": { text: "", value: "" },
  "cluster-dns": { text: "10.43.0.10,fd00::a", value: ["10.43.0.10", "fd00::a"] },
  "cluster-domain": SAME("fleet.local"),
  "healthz-port": NUMBER(0),
  "healthz-bind-address": SAME("0.0.0.0"),
  "read-only-port": NUMBER(10_255),
  "event-qps": NUMBER(0),
  "event-burst": NUMBER(7),
  "feature-gates": {
    text: "MemoryQoS=false,Other=T",
    value: { Kept: true, MemoryQoS: false, Other: true },
    file: "featureGates: {Kept: true, MemoryQoS: true}",
  },
  "logging-format": SAME("json"),
  v: NUMBER(4),
  "container-runtime-endpoint": SAME("unix:///run/crio/crio.sock"),
  "image-service-endpoint": SAME("unix:///run/images.sock"),
  "runtime-request-timeout": SECONDS(30),
  "seccomp-default": SWITCHED(false),
  "allowed-unsafe-sysctls": { text: "net.core.somaxconn,kernel.msg*", value: ["net.core.somaxconn", "kernel.msg*"] },
  "container-log-max-size": { text: "3Mi", value: 3_145_728 },
  "container-log-max-files": NUMBER(2),
  "serialize-image-pulls": SWITCHED(true),
  "max-parallel-image-pulls": { ...NUMBER(3), beside: ["--serialize-image-pulls=false"] },
  "registry-qps": NUMBER(0),
  "registry-burst": NUMBER(3),
  "image-credential-provider-config": { ...SAME("/c.yaml"), beside: ["--image-credential-provider-bin-dir=/b"] },
  "image-credential-provider-bin-dir": { ...SAME("/b"), beside: ["--image-credential-provider-config=/c.yaml"] },
  "image-gc-high-threshold": NUMBER(95),
  "image-gc-low-threshold": NUMBER(50),
  "minimum-image-ttl-duration": SECONDS(300),
  "kube-reserved": { text: "memory=100Mi, cpu=100m", value: { memory: "100Mi", cpu: "100m" } },
  "system-reserved": { text: "pid=100", value: { pid: "100" } },
  "kube-reserved-cgroup": SAME("/kube"),
  "system-reserved-cgroup": SAME("/system"),
  "enforce-node-allocatable": {
    text: "pods,system-reserved",
    value: ["pods", "system-reserved"],
    beside: ["--system-reserved-cgroup=/system", "--system-reserved=memory=50Mi"],
  },
  "reserved-cpus": SAME("0-1"),
  "reserved-memory": {
    text: "0:memory=160Mi",
    value: [{ numaNode: 0, limits: { memory: "160Mi" } }],
    beside: ["--kube-reserved=memory=60Mi", "--eviction-hard=memory.available<100Mi", "--memory-manager-policy=Static"],
  },
  "qos-reserved": { text: "memory=50%", value: { memory: "50%" } },
  "cgroup-driver": SAME("systemd"),
  "cgroup-root": SAME("/pods"),
  "cgroups-per-qos": { ...SWITCHED(true), beside: ["--enforce-node-allocatable="] },
  "cpu-cfs-quota": SWITCHED(true),
  "cpu-cfs-quota-period": { text: "5ms", value: 5 },
  "pod-max-pids": NUMBER(100),
  "oom-score-adj": NUMBER(-500),
  "fail-swap-on": SWITCHED(false),
  "fail-cgroupv1": SWITCHED(false),
  "cpu-manager-policy": { ...SAME("static"), beside: ["--reserved-cpus=0"] },
  "cpu-manager-policy-options": {
    text: "full-pcpus-only=true",
    value: { "full-pcpus-only": "true" },
    beside: ["--cpu-manager-policy=static", "--reserved-cpus=0"],
  },
  "cpu-manager-reconcile-period": SECONDS(11),
  "memory-manager-policy": SAME("None"),
  "topology-manager-policy": SAME("best-effort"),
  "topology-manager-scope": SAME("pod"),
  "topology-manager-policy-options": {
    text: "prefer-closest-numa-nodes=true",
    value: { "prefer-closest-numa-nodes": "true" },
  },
  "eviction-hard": {
    text: "memory.available<50Mi,nodefs.available<5%",
    value: { "memory.available": "50Mi", "nodefs.available": "5%" },
  },
  "eviction-soft": {
    text: "memory.available<30%",
    value: { "memory.available": "30%" },
    beside: ["--eviction-soft-grace-period=memory.available=1m30s"],
  },
  "eviction-soft-grace-period": {
    text: "memory.available=1m30s",
    value: { "memory.available": "1m30s" },
    beside: ["--eviction-soft=memory.available<30%"],
  },
  "eviction-minimum-reclaim": { text: "nodefs.available=1Gi", value: { "nodefs.available": "1Gi" } },
  "eviction-max-pod-grace-period": NUMBER(60),
  "eviction-pressure-transition-period": SECONDS(30),
  "volume-stats-agg-period": SECONDS(120),
  "kernel-memcg-notification": SWITCHED(false),
  "local-storage-capacity-isolation": SWITCHED(true),
  "enable-server": SWITCHED(true),
  address: SAME("127.0.0.1"),
  port: NUMBER(10_251),
  "tls-cert-file": { ...SAME("/c.pem"), beside: ["--tls-private-key-file=/k.pem"] },
  "tls-private-key-file": { ...SAME("/k.pem"), beside: ["--tls-cert-file=/c.pem"] },
  "tls-cipher-suites": TLS_SUITES,
  "tls-min-version": SAME("VersionTLS13"),
  "rotate-certificates": SWITCHED(false),
  "rotate-server-certificates": SWITCHED(false),
  "client-ca-file": SAME("/ca.pem"),
  "anonymous-auth": SWITCHED(false),
  "authentication-token-webhook": SWITCHED(true),
  "authentication-token-webhook-cache-ttl": SECONDS(1),
  "authorization-mode": SAME("AlwaysAllow"),
  "authorization-webhook-cache-authorized-ttl": SECONDS(2),
  "authorization-webhook-cache-unauthorized-ttl": SECONDS(3),
  "enable-debugging-handlers": SWITCHED(true),
  "contention-profiling": SWITCHED(false),
  "streaming-connection-idle-timeout": SECONDS(60),
  "kubelet-cgroups": SAME("/kubelet"),
  "system-cgroups": { ...SAME("/rest"), beside: ["--cgroup-root=/"] },
  "hairpin-mode": SAME("none"),
  "max-open-files": NUMBER(1000),
  "kube-api-content-type": SAME("application/json"),
  "kube-api-qps": NUMBER(10),
  "kube-api-burst": NUMBER(20),
  "enable-controller-attach-detach": SWITCHED(true),
  "protect-kernel-defaults": SWITCHED(false),
  "make-iptables-util-chains": SWITCHED(true),
  "volume-plugin-dir": SAME("/plugins"),
};

const SETTINGS = KUBELET_FLAGS.filter(isSetting);

const valueAt = (value: unknown, field: string): unknown =>
  field.split(".").reduce((inner, name) => (inner as Readonly<Record<string, unknown>> | undefined)?.[name], value);

for (const { name, field } of SETTINGS) {
  test(`--${name} sets ${field}, above what the file says`, () => {
    const { text, value, beside = [], file = "" } = CASES[name] ?? assert.fail(`--${name} has no case`);
    const result = load([`--${name}=${text}`, ...beside], file);
    assert.ok(result.ok, JSON.stringify(result));
    assert.deepEqual(valueAt(result.configuration, field), value);
    // The memory manager's default has no other value that this board can have.
    if (name !== "memory-manager-policy")
      assert.notDeepEqual(valueAt((load(beside, file) as typeof result).configuration, field), value);
    assert.deepEqual(
      result.origins.flags?.find((each) => each.path === field),
      { path: field, flag: `--${name}` },
    );
  });
}

test("no case is of a flag that there is not", () => {
  const names = SETTINGS.map(({ name }) => name);
  assert.deepEqual(
    Object.keys(CASES).filter((name) => !names.includes(name)),
    [],
  );
});

/** How the kubelet's own help writes the type of each form. */
const TYPES: Readonly<Record<FlagForm, readonly string[]>> = {
  text: ["string", "ip", "quantity", "pattern=N,..."],
  path: ["string"],
  number: ["int", "int32", "Level"],
  duration: ["duration"],
  switch: ["bool"],
  list: ["strings"],
  pairs: ["mapStringString"],
  thresholds: ["mapStringString"],
  gates: ["mapStringBool"],
  headers: ["colonSeparatedMultimapStringString"],
  taints: ["[]v1.Taint"],
  reservations: ["reserved-memory"],
};

test("each flag of the kubelet has a row of its type, deprecated where the kubelet says so", () => {
  const own = ["config", "root-dir", "help", "version"];
  const published = readFileSync("test/golden/kubelet-flags.txt", "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => line.split(" ") as [name: string, type: string, state: string])
    .filter(([name]) => !own.includes(name));
  assert.deepEqual(
    published.map(([name]) => name).toSorted(),
    KUBELET_FLAGS.filter((flag) => !(isSetting(flag) && flag.isOwn))
      .map(({ name }) => name)
      .toSorted(),
  );
  for (const [name, type, state] of published) {
    const flag = KUBELET_FLAGS.find((each) => each.name === name) ?? assert.fail(name);
    assert.ok(TYPES[flag.form].includes(type), `--${name} is a ${type}`);
    if (isSetting(flag)) assert.equal(flag.isCurrent === true, state === "current", name);
  }
});

/** Values that are none of a flag's form, or that its field does not take, and what is reported. */
const WRONG: readonly (readonly [line: readonly string[], message: RegExp])[] = [
  [["--max-pods=many"], /^--max-pods=many: maxPods: must be a whole number, such as 10$/],
  [["--max-pods=-1"], /^--max-pods=-1: maxPods: Invalid value: -1: must be greater than or equal to 0$/],
  [["--register-node=yes"], /^--register-node=yes: registerNode: must be true or false$/],
  [["--sync-frequency=soon"], /^--sync-frequency=soon: syncFrequency: .*must be a duration such as "20s"/],
  [["--container-log-max-size=64MB"], /^--container-log-max-size=64MB: containerLogMaxSize: /],
  [["--eviction-hard=memory.available=50Mi"], /^--eviction-hard=memory.available=50Mi: .* memory.available<100Mi/],
  [["--eviction-hard=memory.availble<50Mi"], /^--eviction-hard=memory.availble<50Mi: evictionHard\[memory.availble\]/],
  [["--kube-reserved=cpu"], /^--kube-reserved=cpu: kubeReserved: must be KEY=VALUE pairs/],
  [["--feature-gates=A=maybe"], /^--feature-gates=A=maybe: featureGates: must be GATE=true or GATE=false/],
  [["--feature-gates=A"], /^--feature-gates=A: featureGates: must be GATE=true/],
  [["--register-with-taints=key"], /^--register-with-taints=key: registerWithTaints: must be KEY=VALUE:EFFECT/],
  [["--register-with-taints=a=b:Never"], /^--register-with-taints=a=b:Never: registerWithTaints\[0\].effect: /],
  [["--reserved-memory=memory=1Gi"], /^--reserved-memory=memory=1Gi: reservedMemory: must be NODE:KEY=VALUE/],
  [["--manifest-url-header=secret"], /^--manifest-url-header: staticPodURLHeader: must be NAME:VALUE headers/],
  [["--cluster-dns=10.0.0.1", "--cluster-dns=nine"], /^--cluster-dns=10.0.0.1 --cluster-dns=nine: clusterDNS\[1\]: /],
  [
    ["--image-gc-high-threshold=200"],
    /^--image-gc-high-threshold=200: imageGCHighThresholdPercent: .*between 0 and 100/,
  ],
  [["--authorization-mode=None"], /^--authorization-mode=None: authorization.mode: Unsupported value/],
];

for (const [line, message] of WRONG) {
  test(`a wrong value is reported with its flag and how to mend it: ${line.join(" ")}`, () => {
    const result = load(line, "nodeName: a\nfeatureGates: {A: true}\n");
    assert.ok(!result.ok);
    const [first = ""] = result.problems.map((each) => formatConfigurationProblem("/c.yaml", each));
    assert.match(first, message);
    assert.equal(result.problems.length, 1, "nothing else is blamed");
  });
}

test("problems of file and flags are reported together, each with its place", () => {
  const result = load(["--max-pods=x"], "nodeName: board\nhealthzPort: 99999\n");
  assert.ok(!result.ok);
  assert.deepEqual(result.problems.map((each) => formatConfigurationProblem("/c.yaml", each)).toSorted(), [
    "--max-pods=x: maxPods: must be a whole number, such as 10",
    "/c.yaml:2: healthzPort: Invalid value: 99999: must be between 0 and 65535, inclusive",
  ]);
});

test("a flag mends a field that the file has wrong, and a file that is no mapping stays wrong", () => {
  assert.ok(load(["--max-pods=5"], "maxPods: many").ok);
  assert.ok(!load(["--max-pods=5"], "- a\n- b").ok);
  assert.ok(!load(["--anonymous-auth"], "authentication: 5").ok);
  assert.ok(load(["--anonymous-auth"], "authentication:").ok, "an empty mapping is none");
});

test("no text of a flag makes the configuration throw", () => {
  const texts = [
    "",
    ",",
    "=",
    "<",
    ":",
    ";",
    "__proto__=1",
    "constructor:x",
    "a=b=c",
    "0:",
    "1:2:3",
    "=:=",
    "\0",
    "9".repeat(40),
  ];
  for (const { name } of SETTINGS)
    for (const text of texts)
      loadConfiguration(
        "",
        "board",
        BOARD,
        undefined,
        kubeletFlagValues((each) => (each === name ? [text] : [])).settings,
      );
});

test("rows name fields of the table, and the help lists each", () => {
  for (const { field } of SETTINGS) assert.ok(Object.hasOwn(CONFIGURATION_FIELDS, field.split(".")[0] ?? ""), field);
  const help = groupHelp(KUBELET_GROUP, PICOLET);
  for (const { name } of KUBELET_FLAGS) assert.match(help, new RegExp(`--${name}[ [\n]`));
  for (const line of help.split("\n")) assert.match(line, /^[\x20-\x7e]{0,80}$/);
});
