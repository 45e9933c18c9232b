import { millis } from "@picolet/protocol/ports.ts";
import { VirtualClock } from "@picolet/test/support/unit/ports/virtual-clock.ts";
import { runtimeAdapterConformance } from "../conformance/conformance.ts";
import type { ConformanceFixture, Program } from "../conformance/conformance-fixture.ts";
import { FakeAdapter } from "./fake-adapter.ts";
import { FakeRuntime } from "./fake-runtime.ts";

const IMAGE = "registry.example/fake:1";

const program = (...command: readonly string[]): Program => ({ image: IMAGE, command, args: [] });

async function fakeFixture(): Promise<ConformanceFixture> {
  const clock = new VirtualClock();
  const runtime = new FakeRuntime({ clock });
  runtime.addImage(IMAGE);
  const fixture: ConformanceFixture = {
    adapter: new FakeAdapter(runtime),
    programs: {
      runForever: program("run"),
      exitWith: (code) => program("exit", String(code)),
      exitCodes: [0, 1, 7, 255],
      printLines: (lines) => program("print", ...lines.map(({ stream, text }) => `${stream}:${text}`)),
      countForever: program("count"),
      printEnvironment: (name) => program("printenv", name),
      ignoreTerm: program("deaf"),
      commands: {
        printAndExit: (lines, code) => ["say", String(code), ...lines.map(({ stream, text }) => `${stream}:${text}`)],
        neverEnds: ["run"],
        answerLine: [],
        terminalSize: [],
      },
    },
    restartAgent: async (meanwhile) => {
      await meanwhile?.();
      return new FakeAdapter(runtime);
    },
    killWorkload: async (id, signal) => runtime.kill(id, signal),
    preparePod: async (pod) => ({ logDirectory: `/var/log/pods/${pod.uid}`, cgroupParent: "" }),
    readCgroup: async () => undefined,
    readLog: async (path) => runtime.files.get(path) ?? "",
    renameLog: async (from, to) => runtime.renameFile(from, to),
    settle: () => clock.advance(millis(50)),
    [Symbol.asyncDispose]: async () => runtime[Symbol.dispose](),
  };
  return fixture;
}

runtimeAdapterConformance("fake", fakeFixture, {
  lacks: {
    cgroups: "it runs no processes",
    mounts: "it runs no processes",
    upgrade: "it has no streaming server",
  },
});
