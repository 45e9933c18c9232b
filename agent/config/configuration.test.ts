import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  type Configuration,
  formatConfigurationProblem,
  loadConfiguration,
  MAX_CONFIGURATION_CHARACTERS,
} from "./configuration.ts";

const HOST = "Board-7";

function load(text: string): Configuration {
  const result = loadConfiguration(text, HOST);
  assert.ok(result.ok, result.ok ? "" : JSON.stringify(result.problems));
  return result.configuration;
}

function problemsOf(text: string, hostName = HOST): string[] {
  const result = loadConfiguration(text, hostName);
  return result.ok ? [] : result.problems.map((problem) => formatConfigurationProblem("config.yaml", problem));
}

function notActedUpon(text: string): readonly string[] {
  const result = loadConfiguration(text, HOST);
  assert.ok(result.ok);
  return result.notActedUpon;
}

for (const [name, text] of [
  ["no text", ""],
  ["comments", "# nothing\n"],
  ["an empty document", "---\n"],
  ["an empty mapping", "{}"],
] as const) {
  test(`${name} is the default configuration`, () => {
    const configuration = load(text);
    assert.equal(configuration.nodeName, "board-7");
    assert.equal(configuration.staticPodPath, "/etc/picolet/manifests");
    assert.equal(configuration.fileCheckFrequency, 20_000);
    assert.equal(configuration.containerRuntimeEndpoint, "unix:///run/containerd/containerd.sock");
    assert.equal(configuration.containerLogMaxSize, 10_485_760);
    assert.equal(configuration.resolvConf, "/etc/resolv.conf");
    assert.equal(configuration.serializeImagePulls, true);
    assert.equal(configuration.evictionHard["memory.available"], "100Mi");
    assert.deepEqual(notActedUpon(text), []);
  });
}

test("the configuration is plain data", () => {
  const configuration = load("");
  assert.deepEqual(JSON.parse(JSON.stringify(configuration)), configuration);
});

/** As kubeadm 1.34 writes it, with the zeros that stand for "the default". */
const KUBEADM = `
apiVersion: kubelet.config.k8s.io/v1beta1
authentication:
  anonymous:
    enabled: false
  webhook:
    cacheTTL: 0s
    enabled: true
  x509:
    clientCAFile: /etc/kubernetes/pki/ca.crt
authorization:
  mode: Webhook
  webhook:
    cacheAuthorizedTTL: 0s
    cacheUnauthorizedTTL: 0s
cgroupDriver: systemd
clusterDNS:
- 10.96.0.10
clusterDomain: cluster.local
containerRuntimeEndpoint: unix:///var/run/containerd/containerd.sock
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
kind: KubeletConfiguration
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: "0"
    text:
      infoBufferSize: "0"
  verbosity: 0
memorySwap: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
rotateCertificates: true
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
`;

test("the file of a real kubelet is taken, and zeros in it are the kubelet's defaults", () => {
  const configuration = load(KUBEADM);
  assert.equal(configuration.cgroupDriver, "systemd");
  assert.equal(configuration.staticPodPath, "/etc/kubernetes/manifests");
  assert.deepEqual(configuration.clusterDNS, ["10.96.0.10"]);
  assert.equal(configuration.fileCheckFrequency, 20_000);
  assert.equal(configuration.syncFrequency, 60_000);
  assert.equal(configuration.runtimeRequestTimeout, 120_000);
  assert.equal(configuration.nodeStatusReportFrequency, 300_000);
  assert.equal(configuration.authentication.webhook.cacheTTL, 120_000);
  assert.deepEqual(configuration.crashLoopBackOff, {
    initialContainerRestartPeriod: 10_000,
    maxContainerRestartPeriod: 300_000,
  });
  assert.deepEqual(notActedUpon(KUBEADM), ["rotateCertificates"]);
});

for (const [text, read, expected] of [
  ["healthzPort: 0", (c: Configuration) => c.healthzPort, 0],
  ["port: 0", (c: Configuration) => c.port, 0],
  ['resolvConf: ""', (c: Configuration) => c.resolvConf, ""],
  ["podPidsLimit: -7", (c: Configuration) => c.podPidsLimit, -1],
  ["maxPods: 0", (c: Configuration) => c.maxPods, 110],
  ['cgroupDriver: ""', (c: Configuration) => c.cgroupDriver, "cgroupfs"],
  ["fileCheckFrequency: 1m30s", (c: Configuration) => c.fileCheckFrequency, 90_000],
  ["containerLogMaxSize: 256Ki", (c: Configuration) => c.containerLogMaxSize, 262_144],
  ["containerLogMaxSize: 1048576", (c: Configuration) => c.containerLogMaxSize, 1_048_576],
  ["maxParallelImagePulls: 3", (c: Configuration) => c.serializeImagePulls, false],
  ["nodeStatusUpdateFrequency: 20s", (c: Configuration) => c.nodeStatusReportFrequency, 20_000],
  ["enforceNodeAllocatable: []", (c: Configuration) => c.enforceNodeAllocatable.length, 0],
  ["nodeName: other", (c: Configuration) => c.nodeName, "other"],
  [
    "wasm: {maxComponentSize: 1Gi, transpileTimeout: 10m}",
    (c: Configuration) => c.wasm.maxComponentSize,
    1_073_741_824,
  ],
  ["wasm: {maxComponentSize: 1Gi, transpileTimeout: 10m}", (c: Configuration) => c.wasm.transpileTimeout, 600_000],
  ["wasm: {maxComponentSize: 1Gi}", (c: Configuration) => c.wasm.startTimeout, 30_000],
  ["wasm: {registries: [{host: a, insecure: true}]}", (c: Configuration) => c.wasm.registries[0]?.insecure, true],
  ["", (c: Configuration) => c.wasm.registries.length, 0],
  ["budget: {memoryBytes: 48Mi}", (c: Configuration) => c.budget.memoryBytes, 50_331_648],
  ["budget: {flashBytesPerDay: 1Gi}", (c: Configuration) => c.budget.flashBytesPerDay, 1_073_741_824],
  ["telemetry: {}", (c: Configuration) => c.telemetry.maxBytes, 16_777_216],
  ["telemetry: {maxAge: 24h}", (c: Configuration) => c.telemetry.maxAge, 86_400_000],
  ["telemetry: {flushInterval: 5s}", (c: Configuration) => c.telemetry.flushInterval, 5000],
  ["", (c: Configuration) => c.secretsAtRest.keyProvider, "auto"],
  ["secretsAtRest: {keyProvider: tpm2}", (c: Configuration) => c.secretsAtRest.keyProvider, "tpm2"],
  ["secretsAtRest: {keyFile: /usb/k}", (c: Configuration) => c.secretsAtRest.keyFile, "/usb/k"],
  ["budget: {}", (c: Configuration) => c.budget.agentFlashBytesPerDay, 5_242_880],
  ["hub:", (c: Configuration) => c.hub, null],
  ["hub: {server: 'wss://hub.example'}", (c: Configuration) => c.hub?.server.join(), "wss://hub.example"],
  ["hub: {server: ['https://a', 'https://b:8443']}", (c: Configuration) => c.hub?.server.length, 2],
  ["hub: {server: 'https://a'}", (c: Configuration) => c.hub?.heartbeatInterval, 30_000],
  ["hub: {server: 'https://a', heartbeatInterval: 10s}", (c: Configuration) => c.hub?.heartbeatInterval, 10_000],
  [
    "hub: {server: 'https://a', reconnectBackoff: {max: 2m}}",
    (c: Configuration) => Object.values(c.hub?.reconnectBackoff ?? {}).join(),
    "1000,120000",
  ],
  ["hub: {server: 'https://a', proxy: 'http://p:3128'}", (c: Configuration) => c.hub?.proxy, "http://p:3128"],
  ["hub: {server: 'https://[fd00::1]:8443'}", (c: Configuration) => c.hub?.token, ""],
  ["nodeLabels: {node.kubernetes.io/shelf: '7'}", (c: Configuration) => Object.values(c.nodeLabels).join(), "7"],
  ["evictionHard: {memory.available: 50Mi}", (c: Configuration) => Object.keys(c.evictionHard).length, 1],
  [
    "evictionHard: {memory.available: 50Mi}\nmergeDefaultEvictionSettings: true",
    (c: Configuration) => [c.evictionHard["memory.available"], c.evictionHard["nodefs.available"]].join(),
    "50Mi,10%",
  ],
  [
    "crashLoopBackOff: {initialContainerRestartPeriod: 1s, maxContainerRestartPeriod: 1m}",
    (c: Configuration) => Object.values(c.crashLoopBackOff).join(),
    "1000,60000",
  ],
  [
    "devices: [{name: example.com/x, match: ['usb:0403:6001', 'libusb:1a6e:089a', /dev/x]}]",
    (c: Configuration) => c.devices[0]?.match.join(),
    "usb:0403:6001,libusb:1a6e:089a,/dev/x",
  ],
  ['{"maxPods": 5}', (c: Configuration) => c.maxPods, 5],
  ["failSwapOn: off", (c: Configuration) => c.failSwapOn, false],
] as const) {
  test(`${text.replaceAll("\n", " ")} gives ${expected}`, () => assert.equal(read(load(text)), expected));
}

test("fields that nothing acts upon yet are listed when they say something else than their default", () => {
  assert.deepEqual(notActedUpon("maxPods: 5\nrotateCertificates: true\nsyncFrequency: 2m"), [
    "syncFrequency",
    "rotateCertificates",
  ]);
});

test("the frequency and the images of the node's report are acted upon", () => {
  const text = "nodeStatusUpdateFrequency: 20s\nnodeStatusReportFrequency: 1m\nnodeStatusMaxImages: 10";
  assert.deepEqual(notActedUpon(text), []);
});

test("every problem is named at once, with its line and in the order of lines", () => {
  const text = `maxPods: -1
statcPodPath: /x
fileCheckFrequency: 20
crashLoopBackOff:
  maxContainerRestartPeriod: 1h
  maxContainerRestart: 1s
containerLogMaxSize: 5Mx
clusterDNS:
- 10.96.0.10
- dns
evictionHard:
  memory.available: 100
cgroupDriver: cgroup
`;
  assert.deepEqual(problemsOf(text), [
    "config.yaml:1: maxPods: Invalid value: -1: must be greater than or equal to 0",
    "config.yaml:2: statcPodPath: Unknown field, did you mean staticPodPath?",
    'config.yaml:3: fileCheckFrequency: Invalid value: 20: must be a duration such as "20s" or "1m30s"',
    "config.yaml:5: crashLoopBackOff.maxContainerRestartPeriod: Invalid value: 3600s: must be between 1s and 300s, inclusive",
    "config.yaml:6: crashLoopBackOff.maxContainerRestart: Unknown field",
    "config.yaml:7: containerLogMaxSize: Invalid value: \"5Mx\": quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    'config.yaml:10: clusterDNS[1]: Invalid value: "dns": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)',
    "config.yaml:12: evictionHard[memory.available]: Invalid value: 100: must be a string (put it in quotes)",
    'config.yaml:13: cgroupDriver: Unsupported value: "cgroup": supported values: "cgroupfs", "systemd"',
  ]);
});

for (const [text, problem] of [
  ["apiVersion: v1", /^config.yaml:1: apiVersion: Unsupported value: "v1": supported values: "kubelet.config.k8s.io/],
  ["kind: Pod", /^config.yaml:1: kind: Unsupported value: "Pod": supported values: "KubeletConfiguration"$/],
  ["healthzPort: 65536", /between 0 and 65535, inclusive/],
  ["imageGCHighThresholdPercent: 80", /imageGCLowThresholdPercent: Invalid value: 80: must be less than .* 80$/],
  ["imageMaximumGCAge: 1m", /imageMaximumGCAge: Invalid value: 60s: must be greater than imageMinimumGCAge 120s/],
  [
    "serializeImagePulls: true\nmaxParallelImagePulls: 2",
    /cannot be larger than 1 unless serializeImagePulls is false/,
  ],
  [
    "preloadedImagesVerificationAllowlist: [registry.example/app]",
    /may be set only if imagePullCredentialsVerificationPolicy is NeverVerifyAllowlistedImages/,
  ],
  ...["registry.example/app:1", "registry.example/*/app", "/*", "busybox", " registry.example/app"].map(
    (pattern) =>
      [
        `imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: ["${pattern}"]`,
        /^config.yaml:2: preloadedImagesVerificationAllowlist\[0\]: Invalid value/,
      ] as const,
  ),
  ["imageCredentialProviderConfig: /etc/providers.yaml", /imageCredentialProviderBinDir: Required value/],
  ["imageCredentialProviderConfig: providers\nimageCredentialProviderBinDir: /bin", /must be an absolute path/],
  ["memoryThrottlingFactor: 1.5", /greater than 0 and less than or equal to 1.0/],
  ["cgroupsPerQOS: false", /not supported unless cgroupsPerQOS is true/],
  ["enforceNodeAllocatable: [none, pods]", /enforceNodeAllocatable\[0\]: Invalid value: "none"/],
  ["enforceNodeAllocatable: [kube-reserved]", /kubeReservedCgroup: Required value/],
  ["systemCgroups: /x", /cgroupRoot: Required value: systemCgroups is specified/],
  ["shutdownGracePeriod: 1s\nshutdownGracePeriodCriticalPods: 2s", /less than or equal to shutdownGracePeriod 1s/],
  ["shutdownGracePeriod: 10ms", /either zero or at least 1s/],
  ["staticPodPath: manifests", /must be an absolute path/],
  ["podLogsDir: /var/../log", /must be a normalized path/],
  ["containerRuntimeEndpoint: tcp://1.2.3.4:5", /must be a unix socket/],
  ["containerLogMaxFiles: 1", /greater than or equal to 2/],
  ["cpuCFSQuotaPeriod: 2s", /between 0.001s and 1s, inclusive/],
  ["wasm: {transpileTimeout: -1s}", /wasm.transpileTimeout: Invalid value: -1s/],
  ["wasm: {registries: [{insecure: true}]}", /wasm.registries\[0\].host/],
  ["imageSignatures: [{repository: a.example/b}]", /imageSignatures\[0\].keys: Required value: or keyFiles/],
  [
    "imageSignatures: [{repository: a.example/b:1, require: nothing}]",
    /imageSignatures\[0\].repository: Invalid value/,
  ],
  ["imageSignatures: [{repository: '*', require: reject, keyFiles: [/k]}]", /imageSignatures\[0\].keys: Forbidden/],
  [
    "imageSignatures: [{repository: '*', keyFiles: [k]}]",
    /keyFiles\[0\]: Invalid value: "k": must be an absolute path/,
  ],
  ["imageSignatures: [{repository: '*', keys: [k]}]", /keys\[0\]: Invalid value: "k": must be a public key in PEM/],
  [
    "imageSignatures: [{repository: '*', require: reject}, {repository: '*', require: nothing}]",
    /imageSignatures\[1\].repository: Duplicate value/,
  ],
  ["wasm: {registries: [{host: 'https://a'}]}", /wasm.registries\[0\].host: Invalid value: "https:\/\/a"/],
  ["wasm: {registries: [{host: a}, {host: a}]}", /wasm.registries\[1\].host: Duplicate value/],
  ["wasm: {registries: [{host: 'a:99999'}]}", /wasm.registries\[0\].host: Invalid value/],
  ["wasm: {registries: [{host: a, caFile: ca.pem}]}", /caFile: Invalid value: "ca.pem": must be an absolute path/],
  ["wasm: {registries: [{host: a, caFile: /ca, insecure: true}]}", /caFile: Forbidden/],
  ["wasm: {registries: [{host: a, mirrors: ['b:1', 'https://u:p@b']}]}", /mirrors\[0\].*URL/],
  ["wasm: {registries: [{host: a, mirrors: ['https://u:p@b']}]}", /no user and no password/],
  ["wasm: {proxy: {httpsProxy: 'proxy:3128'}}", /wasm.proxy.httpsProxy: Invalid value: "proxy:3128": must be an http/],
  ["wasm: {proxy: {httpProxy: 'socks5://u:p@a'}}", /wasm.proxy.httpProxy: Invalid value: "socks5:\/\/\*\*\*@a"/],
  ["wasm: {proxy: {noproxy: a}}", /wasm.proxy.noproxy: Unknown field, did you mean noProxy/],
  ["wasm: {http: {caFile: ca.pem}}", /wasm.http.caFile: Invalid value: "ca.pem": must be an absolute path/],
  ["wasm: {http: {cafile: /ca.pem}}", /wasm.http.cafile: Unknown field, did you mean caFile/],
  ["wasm: {registries: [{host: a, mirror: b}]}", /wasm.registries\[0\].mirror: Unknown field/],
  ["budget: {flashBytesPerDay: -1}", /budget.flashBytesPerDay: Invalid value: -1/],
  ["budget: {agentFlashBytesPerDay: 0}", /budget.agentFlashBytesPerDay: Invalid value: 0/],
  ["telemetry: {maxBytes: 1Ki}", /telemetry.maxBytes: Invalid value: 1024/],
  ["telemetry: {flushInterval: 2h}", /telemetry.flushInterval: Invalid value/],
  ["secretsAtRest: {keyProvider: tpm}", /secretsAtRest.keyProvider: Unsupported value: "tpm"/],
  ["secretsAtRest: {keyFile: k}", /secretsAtRest.keyFile: Invalid value: "k": must be an absolute path/],
  ["secretsAtRest: {keyfile: /k}", /secretsAtRest.keyfile: Unknown field, did you mean keyFile/],
  ["updates: {allowed: [os, firmware]}", /updates.allowed\[1\]: Unsupported value: "firmware"/],
  ["budget: {memoryBytes: 0}", /budget.memoryBytes: Invalid value: 0/],
  ["wasm: yes", /wasm: Invalid value: true: must be a mapping/],
  ["hub: {}", /hub.server: Required value: the hub's URL/],
  ["hub: {url: 'https://a'}", /^config.yaml:1: hub.url: Unknown field$/],
  ["hub: {servers: 'https://a'}", /^config.yaml:1: hub.servers: Unknown field, did you mean server\?$/],
  ["hub: {server: 5}", /hub.server: Invalid value: 5: must be a string or a list of strings$/],
  ["hub: {server: 'http://a'}", /hub.server: Invalid value: "http:\/\/a": must be a URL such as "https:/],
  ["hub: {server: ['https://a', 'https://b/x']}", /hub.server\[1\]: Invalid value: .*no path$/],
  ["hub: {server: 'https://me:secret@b'}", /may not hold a user or a password/],
  ["hub: {server: ['https://a', 'https://a']}", /hub.server\[1\]: Duplicate value/],
  ["hub: {server: 'https://a', caHash: 'sha256:12'}", /hub.caHash: Invalid value: "sha256:12": must be "sha256:" and/],
  ["hub: {server: 'https://a', token: secret}", /^config.yaml:1: hub.token: Invalid value: must be a token such as/],
  [
    "hub: {server: 'https://a', proxy: 'https://me:secret@p'}",
    /hub.proxy: Invalid value: must be a URL such as "http:/,
  ],
  ["hub: {server: 'https://a', tokenFile: /t}", /hub.caHash: Required value: a token is shown only to a hub/],
  ["hub: {server: 'https://a', tokenFile: t, caFile: /c}", /hub.tokenFile: .* must be an absolute path/],
  [
    "hub: {server: 'https://a', tokenFile: /t, token: abcdef.0123456789abcdef, caFile: /c}",
    /hub.token: Forbidden: may not be specified together with tokenFile/,
  ],
  ["hub: {server: 'https://a', heartbeatInterval: 1s}", /hub.heartbeatInterval: .* between 5s and 60s/],
  ["hub: {server: 'https://a', reconnectBackoff: {initial: 5s, max: 2s}}", /hub.reconnectBackoff.max: .* initial 5s/],
  ["nodeLabels: {kubernetes.io/role: x}", /nodeLabels\[kubernetes.io\/role\]: Forbidden: a node may not give itself/],
  ["nodeLabels: {'a b': x}", /nodeLabels\[a b\]: Invalid value: "a b": name part/],
  ["registerWithTaints: [{key: a, effect: Never}]", /registerWithTaints\[0\].effect: Unsupported value: "Never"/],
  ["nodeName: A_b", /nodeName: Invalid value: "A_b": a lowercase RFC 1123 subdomain/],
  [
    "allowedUnsafeSysctls: ['kernel.msg*', 'net/core/*', vm.swappiness]",
    /allowedUnsafeSysctls\[2\]: .* not known to be namespaced/,
  ],
  ["allowedUnsafeSysctls: ['kernel.*.max']", /allowedUnsafeSysctls\[0\]: .*with a \* at its end/],
  ["devices: [{name: requests.example.com/x, match: /dev/x}]", /devices\[0\].name: .* must be an extended resource/],
  ["devices: [{name: example.com/x, match: 'libusb:x'}]", /devices\[0\].match\[0\]: .* libusb:VENDOR:PRODUCT/],
  ["maxPods: 1\nmaxPods: 2", /^config.yaml:2: .*unique/],
  ["a: [", /^config.yaml:\d: /],
  ["a: 1\n---\nb: 2", /^config.yaml:\d: .*multiple documents/],
  ["just text", /must be a mapping/],
  ["- 1", /must be a mapping/],
  ["a: *missing", /missing/],
] as const) {
  test(`${text.replaceAll("\n", " ")} is refused: ${problem.source}`, () => {
    assert.ok(
      problemsOf(text).some((each) => problem.test(each)),
      problemsOf(text).join("\n"),
    );
  });
}

test("a host name that is no node name is said to be the host's", () => {
  assert.match(problemsOf("", "my_host").join(), /^config.yaml: nodeName: Invalid value: "my_host"/);
});

test("a file that is too large is refused unread", () => {
  const text = `# ${"x".repeat(MAX_CONFIGURATION_CHARACTERS)}`;
  assert.deepEqual(problemsOf(text), ["config.yaml: Too long: may not be more than 262144 characters"]);
});

test("aliases that multiply are refused", () => {
  const lines = ["a0: &a0 [x]"];
  for (let level = 1; level < 20; level += 1) {
    const before = `*a${level - 1}`;
    lines.push(`a${level}: &a${level} [${[before, before, before, before].join(", ")}]`);
  }
  assert.match(problemsOf(lines.join("\n")).join(), /alias/i);
});

test("no text makes it throw", () => {
  const keys = fc.constantFrom("maxPods", "wasm", "budget", "hub", "clusterDNS", "evictionHard", "authentication", "x");
  const values = fc.constantFrom("1", "-1", "a", "[1, b]", "{a: 1}", "20s", "null", "*x", "&y z", '"', "1e400");
  const document = fc
    .array(fc.tuple(keys, values), { maxLength: 6 })
    .map((lines) => lines.map(([key, value]) => `${key}: ${value}`).join("\n"));
  fc.assert(
    fc.property(fc.oneof(document, fc.string(), fc.json()), (text) => {
      const result = loadConfiguration(text, "host");
      if (!result.ok) assert.notEqual(result.problems.length, 0);
    }),
    { numRuns: 1000 },
  );
});
