/** A pod of each kind that leaves something on a machine: what a node does for it has to be undone when it goes. */
import type { Random } from "@picolet/protocol/ports.ts";
import { BUSYBOX_IMAGE } from "../containerd/test-images.ts";
import { HELLO_IMAGE } from "./node-fixtures.ts";

type Fields = Readonly<Record<string, unknown>>;

/** Objects that pods refer to. */
export interface PodSurroundings {
  /** The ConfigMap, the Secret and the claim of pods that want them. */
  readonly config: string;
  readonly secret: string;
  readonly claim: string;
  readonly hostFolder: string;
  /** The first of `HOST_PORTS` ports on the node. */
  readonly firstHostPort: number;
  readonly nodeName: string;
  /** An image of a component that ends with an error; `HELLO_IMAGE` is one that runs. */
  readonly failingComponent: string;
}

/** Few, so that some pods want one that is taken. */
export const HOST_PORTS = 3;

const SLEEP = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";
const sh = (script: string): readonly string[] => ["/bin/sh", "-c", script];
const exec = (script: string): Fields => ({ exec: { command: sh(script) } });

const container = (fields: Fields = {}, script = SLEEP): Fields => ({
  name: "app",
  image: BUSYBOX_IMAGE,
  imagePullPolicy: "IfNotPresent",
  command: sh(script),
  ...fields,
});

const component = (fields: Fields = {}): Fields => ({
  name: "app",
  image: HELLO_IMAGE,
  imagePullPolicy: "IfNotPresent",
  ...fields,
});

/** Each volume is mounted whole under its name, and what `more` says besides. */
function withVolumes(volumes: readonly Fields[], more: readonly Fields[] = [], fields: Fields = {}): Fields {
  const whole = volumes.map(({ name }) => ({ name, mountPath: `/${name}` }));
  return { volumes, containers: [container({ volumeMounts: [...whole, ...more], ...fields })] };
}

const DOWNWARD_ITEMS = [{ path: "deep/name", fieldRef: { fieldPath: "metadata.name" } }];

type MakeSpec = (around: PodSurroundings, random: Random) => Fields;

/** The specs of each kind, without what all have. */
const KINDS = {
  plain: () => ({ containers: [container(), container({ name: "other" })] }),
  completes: () => ({ restartPolicy: "Never", containers: [container({}, "exit 0")] }),
  fails: () => ({ restartPolicy: "OnFailure", containers: [container({}, "sleep 1; exit 3")] }),
  "crash loop": () => ({ containers: [container({}, "exit 1")] }),
  "init and sidecar": () => ({
    initContainers: [
      container({ name: "proxy", restartPolicy: "Always", startupProbe: { ...exec("true"), periodSeconds: 1 } }),
      container({ name: "setup" }, "true"),
    ],
    containers: [container()],
  }),
  "init that fails": () => ({ initContainers: [container({ name: "setup" }, "exit 2")], containers: [container()] }),
  hooks: () => ({
    terminationGracePeriodSeconds: 3,
    containers: [container({ lifecycle: { postStart: exec("sleep 0.2"), preStop: exec("sleep 0.5") } })],
  }),
  "hooks that hang": () => ({
    containers: [container({ lifecycle: { postStart: exec("sleep 3600"), preStop: exec("sleep 3600") } })],
  }),
  probes: () => ({
    containers: [
      container({
        readinessProbe: { ...exec("true"), periodSeconds: 1 },
        livenessProbe: { ...exec("sleep 3600"), periodSeconds: 1, failureThreshold: 2 },
        startupProbe: { tcpSocket: { port: 9 }, periodSeconds: 1, failureThreshold: 3 },
      }),
    ],
  }),
  "probes that hang": () => ({
    containers: [
      container(
        { readinessProbe: { httpGet: { port: 80 }, periodSeconds: 1 }, livenessProbe: exec("sleep 3600") },
        "nc -ll -p 80 -e /bin/sleep 3600",
      ),
    ],
  }),
  "ignores SIGTERM": () => ({ containers: [container({}, "trap '' TERM; while :; do sleep 1; done")] }),
  daemons: () => ({ containers: [container({}, `(sleep 3600 &) ; (sh -c 'sleep 3600' &) ; ${SLEEP}`)] }),
  emptyDir: () => ({
    securityContext: { fsGroup: 2000 },
    ...withVolumes(
      [
        { name: "disk", emptyDir: { sizeLimit: "1Mi" } },
        { name: "memory", emptyDir: { medium: "Memory", sizeLimit: "1Mi" } },
      ],
      [{ name: "disk", mountPath: "/sub", subPath: "a/b" }],
    ),
  }),
  "mounts of its own": () => ({
    volumes: [{ name: "shared", emptyDir: {} }],
    containers: [
      container(
        {
          securityContext: { privileged: true },
          volumeMounts: [{ name: "shared", mountPath: "/shared", mountPropagation: "Bidirectional" }],
        },
        `mkdir -p /shared/in && mount -t tmpfs tmpfs /shared/in; ${SLEEP}`,
      ),
    ],
  }),
  hostPath: ({ hostFolder }) =>
    withVolumes(
      [{ name: "host", hostPath: { path: hostFolder, type: "DirectoryOrCreate" } }],
      [{ name: "host", mountPath: "/part", subPath: "part" }],
    ),
  "config and secret": ({ config, secret }) =>
    withVolumes(
      [
        { name: "config", configMap: { name: config } },
        { name: "secret", secret: { secretName: secret, items: [{ key: "key", path: "deep/key" }] } },
      ],
      [{ name: "config", mountPath: "/file", subPath: "key" }],
      { envFrom: [{ configMapRef: { name: config } }] },
    ),
  projected: ({ config }) => ({
    automountServiceAccountToken: true,
    ...withVolumes([
      {
        name: "all",
        projected: {
          sources: [
            { serviceAccountToken: { path: "token", expirationSeconds: 600 } },
            { configMap: { name: config } },
            { downwardAPI: { items: DOWNWARD_ITEMS } },
          ],
        },
      },
      { name: "down", downwardAPI: { items: DOWNWARD_ITEMS } },
    ]),
  }),
  "image volume": () =>
    withVolumes(
      [{ name: "image", image: { reference: BUSYBOX_IMAGE, pullPolicy: "IfNotPresent" } }],
      [{ name: "image", mountPath: "/part", subPath: "bin" }],
    ),
  claim: ({ claim }) => withVolumes([{ name: "data", persistentVolumeClaim: { claimName: claim } }]),
  "volume that is not there": () => withVolumes([{ name: "config", configMap: { name: "nobody" } }]),
  "image that is not there": () => ({
    containers: [container({ image: "localhost/nobody:1", imagePullPolicy: "Never" })],
  }),
  hostPort: ({ firstHostPort }, random) => {
    const hostPort = firstHostPort + Math.floor(random.next() * HOST_PORTS);
    return { containers: [container({ ports: [{ containerPort: 80, hostPort, protocol: "TCP" }] })] };
  },
  "the node's namespaces": () => ({ hostNetwork: true, hostPID: true, hostIPC: true, containers: [container()] }),
  "one process namespace": () => ({
    shareProcessNamespace: true,
    containers: [container(), container({ name: "other" })],
  }),
  deadline: () => ({ activeDeadlineSeconds: 1, containers: [container()] }),
  "too much for the node": () => ({
    containers: [container({ resources: { requests: { cpu: "1000" } } })],
  }),
  "for another node": () => ({ nodeSelector: { nobody: "here" }, containers: [container()] }),
  limits: () => ({
    containers: [container({ resources: { limits: { cpu: "100m", memory: "32Mi" } } })],
  }),
  debugged: () => ({ containers: [container()] }),
  component: () => ({ runtimeClassName: "wasm", containers: [component(), component({ name: "other" })] }),
  "component with volumes": ({ config }) => ({
    runtimeClassName: "wasm",
    volumes: [
      { name: "memory", emptyDir: { medium: "Memory" } },
      { name: "config", configMap: { name: config } },
    ],
    containers: [
      component({
        volumeMounts: [
          { name: "memory", mountPath: "/memory" },
          { name: "config", mountPath: "/config" },
        ],
      }),
    ],
  }),
  "component that fails": ({ failingComponent }) => ({
    runtimeClassName: "wasm",
    containers: [component({ image: failingComponent, imagePullPolicy: "Never" })],
  }),
} satisfies Readonly<Record<string, MakeSpec>>;

export type PodKind = keyof typeof KINDS;

export const POD_KINDS = Object.keys(KINDS) as readonly PodKind[];

/** The container that `kubectl debug` adds to a pod of kind `debugged`. */
export const DEBUGGER: Fields = { ...container({ name: "debugger" }), targetContainerName: "app" };

export function podOfKind(kind: PodKind, name: string, around: PodSurroundings, random: Random): Fields {
  const make: MakeSpec = KINDS[kind];
  return {
    apiVersion: "v1",
    kind: "Pod",
    metadata: { name, labels: { kind: kind.replaceAll(/[^A-Za-z]/g, "-") } },
    spec: {
      nodeName: around.nodeName,
      terminationGracePeriodSeconds: 1,
      automountServiceAccountToken: false,
      ...make(around, random),
    },
  };
}
