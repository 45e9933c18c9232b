import assert from "node:assert/strict";
import { test } from "node:test";
import { parsedPod } from "@picolet/test/support/unit/pods/parsed-manifests.ts";
import fc from "fast-check";
import { checkComponentPod, ignoredPodFields, refuseDense, refuseEphemeral } from "./refusals.ts";

type Fields = Readonly<Record<string, unknown>>;

const podOf = (container: Fields, spec: Fields, metadata: Fields = {}) =>
  parsedPod({ containers: [{ name: "app", image: "example.com/app:1", ...container }], ...spec }, metadata);

const REFUSED: readonly (readonly [container: Fields, spec: Fields, path: string])[] = [
  [{}, { hostPID: true }, "spec.hostPID"],
  [{}, { hostIPC: true }, "spec.hostIPC"],
  [{}, { shareProcessNamespace: true }, "spec.shareProcessNamespace"],
  [{}, { hostUsers: false }, "spec.hostUsers"],
  [{}, { securityContext: { sysctls: [{ name: "net.a", value: "1" }] } }, "spec.securityContext.sysctls"],
  [{}, { securityContext: { seLinuxOptions: { level: "s0" } } }, "spec.securityContext.seLinuxOptions"],
  [{ securityContext: { privileged: true } }, {}, "spec.containers[0].securityContext.privileged"],
  [{ securityContext: { capabilities: { add: ["X"] } } }, {}, "spec.containers[0].securityContext.capabilities.add"],
  [
    { securityContext: { appArmorProfile: { type: "Localhost", localhostProfile: "mine" } } },
    {},
    "spec.containers[0].securityContext.appArmorProfile",
  ],
  [
    { securityContext: { seccompProfile: { type: "Localhost", localhostProfile: "mine" } } },
    {},
    "spec.containers[0].securityContext.seccompProfile",
  ],
  [{ ports: [{ containerPort: 80, hostPort: 8081 }] }, {}, "spec.containers[0].ports"],
  [{ livenessProbe: { exec: { command: ["x"] } } }, {}, "spec.containers[0].livenessProbe"],
  [{ startupProbe: { grpc: { port: 80 } } }, {}, "spec.containers[0].startupProbe"],
  [{ readinessProbe: { tcpSocket: { port: 80 } } }, {}, "spec.containers[0].readinessProbe"],
  [{ readinessProbe: { httpGet: { port: 80, host: "" } } }, {}, "spec.containers[0].readinessProbe"],
  [{ lifecycle: { postStart: { exec: { command: ["x"] } } } }, {}, "spec.containers[0].lifecycle.postStart.exec"],
  [{ lifecycle: { preStop: { exec: { command: ["x"] } } } }, {}, "spec.containers[0].lifecycle.preStop.exec"],
  [{ lifecycle: { stopSignal: "SIGUSR1" } }, { os: { name: "linux" } }, "spec.containers[0].lifecycle.stopSignal"],
];
for (const [container, spec, path] of REFUSED) {
  test(`a component cannot have ${path}`, () => {
    assert.throws(
      () => checkComponentPod(podOf(container, spec)),
      (error: Error & { reason?: string }) => {
        assert.equal(error.reason, "FailedCreatePodSandBox");
        assert.ok(error.message.startsWith(`cannot run WebAssembly components so: ${path}: `), error.message);
        return true;
      },
    );
  });
}

test("all that is wrong is said at once", () => {
  const pod = podOf({ securityContext: { privileged: true } }, { hostPID: true, hostIPC: true });
  assert.throws(() => checkComponentPod(pod), /spec\.hostPID: .*; spec\.hostIPC: .*; spec\.containers\[0\]/);
});

test("fields that change nothing for a component are accepted", () => {
  const securityContext = {
    allowPrivilegeEscalation: false,
    readOnlyRootFilesystem: true,
    capabilities: { drop: ["ALL"] },
    seccompProfile: { type: "RuntimeDefault" },
    appArmorProfile: { type: "RuntimeDefault" },
  };
  const container = { securityContext, ports: [{ containerPort: 80 }], lifecycle: { stopSignal: "SIGTERM" } };
  const spec = { hostname: "x", subdomain: "y", dnsPolicy: "Default", os: { name: "linux" } };
  checkComponentPod(podOf(container, { ...spec, securityContext: { supplementalGroupsPolicy: "Strict" } }));
  checkComponentPod(podOf({ ports: [{ containerPort: 80 }] }, { hostNetwork: true }));
});

test("hooks and probes of another host are accepted", () => {
  const httpGet = { host: "192.0.2.1", port: 80 };
  const lifecycle = { postStart: { sleep: { seconds: 1 } }, preStop: { httpGet: { port: 80 } } };
  checkComponentPod(podOf({ lifecycle, livenessProbe: { httpGet }, readinessProbe: { tcpSocket: httpGet } }, {}));
});

/** Handlers of probes and hooks, and whether a component can have them there. */
const PROBES: readonly (readonly [handler: Fields, isFit: boolean])[] = [
  [{ exec: { command: ["x"] } }, false],
  [{ grpc: { port: 80 } }, false],
  [{ httpGet: { port: 80 } }, false],
  [{ httpGet: { port: 80, host: "192.0.2.1" } }, true],
  [{ tcpSocket: { port: "web" } }, false],
  [{ tcpSocket: { port: 80, host: "192.0.2.1" } }, true],
];
const HOOKS: readonly (readonly [handler: Fields, isFit: boolean])[] = [
  [{ exec: { command: ["x"] } }, false],
  [{ httpGet: { port: 80 } }, true],
  [{ sleep: { seconds: 1 } }, true],
];

test("of any probes and hooks, exactly those that cannot work are named", () => {
  const maybe = <T>(of: readonly T[]) => fc.option(fc.constantFrom(...of), { nil: undefined });
  const container = fc.record({
    ...{ livenessProbe: maybe(PROBES), readinessProbe: maybe(PROBES), startupProbe: maybe(PROBES) },
    ...{ postStart: maybe(HOOKS), preStop: maybe(HOOKS) },
  });
  fc.assert(
    fc.property(fc.array(container, { minLength: 1, maxLength: 3 }), (drawn) => {
      const containers = drawn.map(({ postStart, preStop, ...probes }, index) => ({
        ...{
          name: `c${index}`,
          image: "example.com/app:1",
          lifecycle: { postStart: postStart?.[0], preStop: preStop?.[0] },
        },
        ...Object.fromEntries(Object.entries(probes).map(([kind, probe]) => [kind, probe?.[0]])),
      }));
      const expected = drawn.flatMap((each, index) =>
        Object.entries(each).flatMap(([field, wish]) => {
          const isHook = field === "postStart" || field === "preStop";
          const path = `spec.containers[${index}].${isHook ? `lifecycle.${field}.exec` : field}`;
          return wish === undefined || wish[1] ? [] : [path];
        }),
      );
      let said = "";
      try {
        checkComponentPod(parsedPod({ containers: JSON.parse(JSON.stringify(containers)) }));
      } catch (error) {
        said = (error as Error).message;
      }
      assert.deepEqual(said.match(/spec\.containers[^:]*/g) ?? [], expected);
    }),
  );
});

test("fields that are ignored without harm are reported, fields of every pod are not", () => {
  const init = [{ name: "init", image: "example.com/app:1", tty: true, stdin: true }];
  const dns = {
    hostAliases: [{ ip: "192.0.2.1", hostnames: ["a"] }],
    dnsConfig: { searches: ["b"] },
    setHostnameAsFQDN: true,
  };
  assert.deepEqual(
    ignoredPodFields(podOf({ stdin: true }, { ...dns, initContainers: init })).map((each) => each.split(":")[0]),
    [
      ...["spec.hostAliases", "spec.dnsConfig", "spec.setHostnameAsFQDN", "spec.containers[0].stdin"],
      ...["spec.initContainers[0].stdin", "spec.initContainers[0].tty"],
    ],
  );
  assert.deepEqual(ignoredPodFields(podOf({}, { hostname: "x", subdomain: "y", dnsPolicy: "Default" })), []);
});

test("an ephemeral container cannot look into a component", () => {
  const debug = { name: "debug", image: "example.com/debug:1" };
  const pod = (more: Fields) => podOf({}, { ephemeralContainers: [{ ...debug, ...more }] });
  assert.throws(() => refuseEphemeral(pod({ targetContainerName: "app" }), "debug"), {
    reason: "CreateContainerConfigError",
  });
  refuseEphemeral(pod({}), "debug");
  refuseEphemeral(pod({ targetContainerName: "app" }), "app");
});

test("with a port of its own a component can be asked, and led to at that port of the node", () => {
  const probes = { livenessProbe: { httpGet: { port: 80 } }, readinessProbe: { tcpSocket: { port: "web" } } };
  const ports = [{ containerPort: 80, hostPort: 80, name: "web" }];
  checkComponentPod(podOf({ ...probes, ports }, {}));
  assert.throws(() => checkComponentPod(podOf(probes, {})), /no TCP port/);
  const udp = [{ containerPort: 80, protocol: "UDP" }];
  assert.throws(() => checkComponentPod(podOf({ ...probes, ports: udp }, {})), /no TCP port/);
});

const NOTHING = { ownCpus: false, devices: false, infers: false, p3: false, unjailed: undefined };

test("fields that a shared process supports are not refused", () => refuseDense(NOTHING));

test("where no jail can be made it is refused at once, with why and what to do, as its user could open nothing", () => {
  const unjailed = "util-linux is not whole: unshare not found";
  assert.throws(() => refuseDense({ ...NOTHING, unjailed }), {
    code: "invalid",
    reason: "CreateContainerConfigError",
    message:
      /another user than root where no jail can be made \(util-linux is not whole: unshare not found\).*mode: isolated/,
  });
});

test("all problems are reported at once", () => {
  const all = { ownCpus: true, devices: true, infers: true, p3: true, unjailed: "the kernel refuses" };
  assert.throws(() => refuseDense(all), /CPUs of its own.*devices.*models.*WASI 0\.3.*the kernel refuses/);
});
