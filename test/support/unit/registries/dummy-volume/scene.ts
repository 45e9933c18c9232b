/**
 * A program: adds the made-up volume type by a line in each of the two tables, mounts it in a pod of the fake adapter,
 * and removes the pod. It prints what it saw, as JSON.
 */
import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { TempFolder } from "../../machine/temp-folder.ts";
import { RecordedEvents, RecordedLog } from "../../ports/recorders.ts";
import { VirtualClock } from "../../ports/virtual-clock.ts";
import { addLines } from "../add-lines.ts";

const line = { line: "  note,", after: "  hostPath," } as const;
const url = (specifier: string): string => import.meta.resolve(specifier);
addLines([
  {
    ...line,
    module: url("@picolet/protocol/pod/volumes/volume-models.ts"),
    imports: `import { note } from ${JSON.stringify(url("./model.ts"))};`,
  },
  {
    ...line,
    module: url("@picolet/agent/volumes/types/volume-types.ts"),
    imports: `import { note } from ${JSON.stringify(url("./type.ts"))};`,
  },
]);

const { parsePod } = await import("@picolet/protocol/pod/validation/parse-pod.ts");
const { unknownPodFields } = await import("@picolet/protocol/pod/validation/unknown-fields.ts");
const { podReferences } = await import("@picolet/hub-core/pod-references.ts");
const { restrictedChecks } = await import("@picolet/hub-embedded/admission/restricted-checks.ts");
const { PodEnvironmentOnDisk } = await import("@picolet/agent/volumes/pod-environment.ts");
const { limitedVolumes } = await import("@picolet/agent/volumes/ephemeral-storage/storage-verdict.ts");
const { SystemMounter } = await import("@picolet/agent/volumes/files/mounter.ts");
const { FakeAdapter } = await import("@picolet/runtime-test-kit/fake/fake-adapter.ts");
const { FakeRuntime } = await import("@picolet/runtime-test-kit/fake/fake-runtime.ts");
const { fakeProgramOf } = await import("@picolet/runtime-test-kit/fake/fake-program.ts");
const { TestClusterObjects } = await import("../../agent/memory-cluster-objects.ts");
const { desired, firstContainer } = await import("../../pods/sample-pods.ts");
const { millis } = await import("@picolet/protocol/ports.ts");

const IMAGE = "registry.example/fake:1";
const signal = new AbortController().signal;
const manifest = (note: object) => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name: "web" },
  spec: {
    containers: [{ name: "app", image: IMAGE, command: ["run"], volumeMounts: [{ name: "n", mountPath: "/n" }] }],
    volumes: [{ name: "n", note }],
  },
});

const refused = parsePod(manifest({ mode: 0o1000 }));
const parsed = parsePod(manifest({ text: "hello" }));
if (!parsed.ok) throw new Error(JSON.stringify(parsed.problems));
const pod = desired(parsed.pod);

using folder = new TempFolder();
writeFileSync(folder.at("resolv.conf"), "");
const clock = new VirtualClock();
const objects = new TestClusterObjects(clock);
const log = new RecordedLog();
const mounter = new SystemMounter();
const environment = new PodEnvironmentOnDisk(
  {
    ...{ clock, log, mounter, objects, objectsChanged: objects.changed, events: new RecordedEvents() },
    cgroups: { pathOf: () => "", ensure: async () => undefined, remove: async () => undefined },
    hostIPs: () => ["192.0.2.1"],
  },
  {
    ...{ rootDir: folder.at("lib"), podLogsDir: folder.at("logs"), resolvConf: folder.at("resolv.conf") },
    ...{ nodeName: "board", allocatable: {}, memoryBytes: 2 ** 29 },
    clusterDNS: { servers: [], domain: "cluster.local" },
  },
);
let seen: unknown;
using runtime = new FakeRuntime(
  { clock },
  {
    programOf: (launch) => {
      const mount = launch.mounts.find(({ containerPath }) => containerPath === "/n");
      const file = `${mount?.hostPath}/text`;
      seen = { text: readFileSync(file, "utf8"), mode: statSync(file).mode & 0o777, readOnly: mount?.readOnly };
      return fakeProgramOf(launch);
    },
  },
);
runtime.addImage(IMAGE);
const adapter = new FakeAdapter(runtime);
await environment.prepare(pod, signal);
await adapter.apply(pod, { kind: "createSandbox", sandbox: environment.sandbox(pod, 0) }, signal);
const run = { attempt: 0, backoff: millis(0), image: { requested: IMAGE, id: `sha256:${IMAGE}` } };
const container = environment.container(pod, firstContainer(pod), run, runtime.inspect(pod.uid));
await adapter.apply(pod, { kind: "startContainer", container }, signal);
const isRefreshed = environment.hasRefreshedVolumes(pod);
const limits = limitedVolumes(pod.pod);
await environment.cleanup(pod, signal);
const isRemoved = !existsSync(folder.at("lib/pods", pod.uid));

const restricted = restrictedChecks.find(({ id }) => id === "restrictedVolumes")?.revisions[0];
console.log(
  JSON.stringify({
    refused: refused.ok ? [] : refused.problems.map(({ path, message }) => `${path}: ${message}`),
    misspelt: unknownPodFields(manifest({ text: "hello", mod: 1 })).map(({ message }) => message),
    references: podReferences(parsed.pod as never).filter(({ kind }) => kind === "Secret"),
    podSecurity: restricted?.evaluate({ metadata: {}, spec: parsed.pod.spec } as never, {} as never)?.detail,
    ...{ seen, isRefreshed, limits, isRemoved, logged: log.entries.map(({ message }) => message) },
  }),
);
