/**
 * Test components: C programs made with Debian's clang and the command adapter that jco brings, and JavaScript.
 * Built when first asked for, kept in `dist/` by the content of their source.
 */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { extname, join, resolve } from "node:path";
import { appear, BUILD, bundled, type Format } from "../unit/machine/bundles.ts";
import { built, type TextFile, textFile } from "../unit/wasm/text-components.ts";
import { withWorld } from "./wasi-wit.ts";

const SOURCES = "test/components";
/** Included before every program with a C library. */
const HEADER = "test/components/realloc.h";
/** Headers that a C program may include: a change of one builds all again. */
const HEADERS = [
  HEADER,
  ...["canonical.h", "async.h", "async-serving.h", "async-sockets.h", "http-serving.h"].map(
    (name) => `${SOURCES}/${name}`,
  ),
];
/** From the preview 1 that wasi-libc knows to WASI 0.2. */
const COMMAND_ADAPTER = "node_modules/@bytecodealliance/jco/lib/wasi_snapshot_preview1.command.wasm";

/**
 * clang runs a `wasm-opt` that it finds in PATH. npm's is there under `npm test`: it takes 2.5 s of a processor for each
 * component, and makes other components than clang alone does under `node --test`.
 */
const WITHOUT_OPTIMIZER = { ...process.env, PATH: "/usr/bin:/bin" };

const asyncWorld = "import wasi:cli/environment@0.3.0; import wasi:cli/stdout@0.3.0; export wasi:cli/run@0.3.0;";

const BOARD = ["keyvalue", "config", "logging", "node-info"]
  .map((name) => `import picolet:board/${name}@0.1.0;`)
  .join(" ");

/** C without a C library, with the canonical ABI written by hand: the world that it is for. */
const WORLDS: Readonly<Record<string, string>> = {
  "waits.c": "import wasi:cli/environment; import wasi:clocks/monotonic-clock; export wasi:cli/run;",
  "async.c":
    "import wasi:cli/environment@0.3.0; import wasi:cli/exit@0.3.0; import wasi:cli/stdin@0.3.0; import wasi:cli/stdout@0.3.0; import wasi:cli/stderr@0.3.0; import wasi:clocks/monotonic-clock@0.3.0; import wasi:clocks/system-clock@0.3.0; import wasi:random/random@0.3.0; import wasi:random/insecure-seed@0.3.0; export wasi:cli/run@0.3.0;",
  "async-files.c": `${asyncWorld} import wasi:filesystem/types@0.3.0; import wasi:filesystem/preopens@0.3.0;`,
  "http-asks.c":
    "import wasi:http/types; import wasi:http/outgoing-handler; import wasi:io/streams; import wasi:io/poll; export wasi:http/incoming-handler;",
  "async-client.c": `${asyncWorld} import wasi:http/types@0.3.0; import wasi:http/client@0.3.0;`,
  "async-server.c": "import wasi:http/types@0.3.0; export wasi:http/handler@0.3.0;",
  "async-board.c": `${asyncWorld} import wasi:clocks/monotonic-clock@0.3.0; ${BOARD} import picolet:board/telemetry@0.1.0; import wasi:keyvalue/store@0.2.0-draft2; import wasi:keyvalue/atomics@0.2.0-draft2;`,
  "async-serial.c": `${asyncWorld} import wasi:clocks/monotonic-clock@0.3.0; import picolet:board/serial@0.1.0; import wasi:io/streams;`,
  "async-pins.c": `${asyncWorld} import wasi:clocks/monotonic-clock@0.3.0; import picolet:board/gpio@0.1.0; import picolet:board/i2c@0.1.0;`,
  "async-writer.c": "import wasi:http/types@0.3.0; export wasi:http/handler@0.3.0;",
  "async-proxy.c":
    "import wasi:http/types@0.3.0; import wasi:sockets/types@0.3.0; import wasi:sockets/ip-name-lookup@0.3.0; export wasi:http/handler@0.3.0;",
  "async-net.c": `${asyncWorld} import wasi:sockets/types@0.3.0; import wasi:sockets/ip-name-lookup@0.3.0;`,
  "http-server.c":
    "import wasi:http/types; import wasi:io/streams; import wasi:clocks/monotonic-clock; import wasi:filesystem/types; import wasi:filesystem/preopens; export wasi:http/incoming-handler;",
};

/** WASI 0.2 imports of the programs themselves, beside those of their C library. */
const IMPORTS: Readonly<Record<string, string>> = {
  "net.c": ["instance-network", "ip-name-lookup", "tcp", "tcp-create-socket", "udp", "udp-create-socket"]
    .map((name) => `import wasi:sockets/${name};`)
    .concat("import wasi:io/streams; import wasi:io/poll;")
    .join(" "),
  "http-client.c":
    "import wasi:http/types; import wasi:http/outgoing-handler; import wasi:io/streams; import wasi:io/poll;",
  "hoards.c": "import wasi:clocks/monotonic-clock;",
  "board.c": BOARD,
  "wasi-keyvalue.c":
    "import wasi:keyvalue/store@0.2.0-draft2; import wasi:keyvalue/batch@0.2.0-draft2; import wasi:config/store@0.2.0-rc.1; import wasi:logging/logging@0.1.0-draft;",
  "wasi-keyvalue-draft.c": "import wasi:keyvalue/store@0.2.0-draft; import wasi:keyvalue/atomics@0.2.0-draft;",
  "wasi-atomics.c": "import wasi:keyvalue/store@0.2.0-draft2; import wasi:keyvalue/atomics@0.2.0-draft2;",
  "telemetry.c": "import picolet:board/telemetry@0.1.0;",
  "serial.c": "import picolet:board/serial@0.1.0; import wasi:io/streams;",
  "pins.c": "import picolet:board/gpio@0.1.0; import picolet:board/i2c@0.1.0; import wasi:io/poll;",
  "nn.c": ["tensor", "errors", "inference", "graph"]
    .map((name) => `import wasi:nn/${name}@0.2.0-rc-2024-10-28;`)
    .join(" "),
};

/** The components of `test/components`, by file name. */
export type TestComponent =
  | "workload.c"
  | "files.c"
  | "script.c"
  | "waits.c"
  | "async.c"
  | "async-files.c"
  | "http-asks.c"
  | "async-client.c"
  | "async-server.c"
  | "async-writer.c"
  | "async-board.c"
  | "async-net.c"
  | "async-proxy.c"
  | "async-serial.c"
  | "async-pins.c"
  | "http-server.c"
  | "http-client.c"
  | "net.c"
  | "escapes.c"
  | "hoards.c"
  | "board.c"
  | "wasi-keyvalue.c"
  | "wasi-keyvalue-draft.c"
  | "wasi-atomics.c"
  | "telemetry.c"
  | "serial.c"
  | "pins.c"
  | "nn.c"
  | TextFile
  | "calls.js";

/** @returns the absolute path of the component. */
export async function testComponent(source: TestComponent): Promise<string> {
  if (isText(source)) return textFile(source);
  return built(source, sourceOf(source), async (folder) => {
    if (extname(source) === ".js")
      return (await import("./javascript-component.ts")).javascriptComponent(join(SOURCES, source), folder);
    return componentOf(source, moduleOf(source, folder));
  });
}

const isText = (source: TestComponent): source is TextFile => extname(source) === ".wat";

const componentOf = (source: string, module: Uint8Array): Promise<Uint8Array> =>
  WORLDS[source] === undefined ? commandComponent(module, IMPORTS[source]) : worldComponent(module, WORLDS[source]);

/** A core module, as a compiler makes it: not a component yet. */
export async function testCoreModule(source: "workload.c"): Promise<string> {
  const content = sourceOf(source);
  return built(`core-${source}`, content, async (folder) => moduleOf(source, folder));
}

/** With the headers of C programs, or the world of JavaScript, which are part of what is built. */
function sourceOf(source: TestComponent): Buffer {
  const path = join(SOURCES, source);
  const more = { ".c": HEADERS, ".js": [path.replace(/\.js$/, ".wit")] }[extname(source)] ?? [];
  return Buffer.concat([...more, path].map((each) => readFileSync(each)));
}

export type TestPrograms = Readonly<
  Record<"runnerPath" | "densePath" | "transpilePath" | "pullPath" | "devicesPath", string>
>;

/** The programs that the adapter starts, as they are shipped: one small file each. */
export async function testPrograms(): Promise<TestPrograms> {
  const program = (source: string, format: Format): Promise<string> =>
    bundled(join("runtime-adapters/wasm", source), format);
  return {
    pullPath: await program("pull/pull-main.ts", "cjs"),
    devicesPath: await program("devices/devices-main.ts", "cjs"),
    runnerPath: await program("runner/runner-main.ts", "cjs"),
    densePath: await program("dense/dense-main.ts", "cjs"),
    transpilePath: await program("transpile/transpile-main.ts", "esm"),
  };
}

/** With a transpiler that is asked once for each component, by all test files together: it takes seconds for most. */
export async function keepingPrograms(): Promise<TestPrograms> {
  const programs = await testPrograms();
  const keeper = await bundled("test/support/wasm/caching-transpiler.ts", "esm");
  const transpiler = readFileSync(programs.transpilePath);
  const hash = createHash("sha256").update(transpiler).update(readFileSync(keeper)).digest("hex").slice(0, 16);
  const folder = resolve(BUILD, `transpiled-${hash}`);
  mkdirSync(folder, { recursive: true });
  for (const [name, content] of [
    ["transpiler.mjs", transpiler],
    ["keeper.mjs", readFileSync(keeper)],
  ] as const) {
    const path = join(folder, name);
    if (!existsSync(path)) appear(path, (temporary) => writeFileSync(temporary, content));
  }
  return { ...programs, transpilePath: join(folder, "keeper.mjs") };
}

function moduleOf(source: string, folder: string): Uint8Array {
  const output = join(folder, "core.wasm");
  const libraries =
    WORLDS[source] === undefined ? ["-nostartfiles", "-include", HEADER] : ["-nostdlib", "-Wl,--no-entry"];
  const flags = ["--target=wasm32-wasi", "-Os", "-s", "-Wno-infinite-recursion", ...libraries];
  execFileSync("clang", [...flags, "-o", output, join(SOURCES, source)], { env: WITHOUT_OPTIMIZER });
  return readFileSync(output);
}

/** @param imports beside those of the C library */
async function commandComponent(module: Uint8Array, imports: string | undefined): Promise<Uint8Array> {
  const described = imports === undefined ? module : await withWorld(module, imports);
  const { componentNew } = await import("@bytecodealliance/jco-transpile/wasm-tools");
  return componentNew(described, [["wasi_snapshot_preview1", readFileSync(COMMAND_ADAPTER)]]);
}

async function worldComponent(module: Uint8Array, world: string): Promise<Uint8Array> {
  const { componentNew } = await import("@bytecodealliance/jco-transpile/wasm-tools");
  return componentNew(await withWorld(module, world));
}
