/**
 * Builds the two distributions, `dist/board/` (agent, edgectl) and `dist/hub/`. Each is complete: copied to a machine
 * that has only Debian's base system, it runs. Each has:
 *
 *     bin/                    launchers, the programs by name
 *     lib/                    Node, the bundles, and what is loaded of the packages that cannot be bundled
 *     wit/                    the board's interfaces for components (board only)
 *     LICENSE, THIRD-PARTY-LICENSES, sbom.cdx.json
 *
 * A program is one file, so that a board reads one file and no package folder. What the agent loads only where it is
 * needed lies in files of its own beside it.
 *
 * CommonJS on purpose: an ES module that imports `node:http` makes Node evaluate every getter of that module, which
 * loads its WebSocket client: 6.5 MiB of anonymous memory (measured, Node 24.21) for nothing.
 */
import { mkdirSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join, parse, relative, resolve } from "node:path";
import { embeddedResources } from "@picolet/hub-embedded/embedded-resources.ts";
import { FolderModelSource, gatherModels } from "@picolet/hub-embedded/schema/models.ts";
import { modelRoots } from "@picolet/hub-embedded/server/model-roots.ts";
import { parsedFlag } from "@picolet/protocol/command-line/flag-values.ts";
import { describeError } from "@picolet/protocol/errors.ts";
import { type BuildOptions, build, type Metafile, type Plugin, type TransformOptions, transform } from "esbuild";
import { parseSync } from "oxc-parser";
import { boardDocuments, hubDocuments } from "../docs/docs.ts";
import { readOptions } from "../options.ts";
import { buildContainerExample } from "./build-container-example.ts";
import { buildExamples } from "./build-examples.ts";
import { complete, jco, koffi, onnxRuntime, sqlite } from "./carried-packages.ts";
import { Distribution } from "./distribution.ts";
import { FileLock } from "./file-lock.ts";
import { type BundledFile, type Bundles, keptBundles } from "./kept-bundles.ts";
import { type PageName, pageFiles } from "./page-files.ts";
import { ownPlatform, PLATFORMS, type Platform, platformOf } from "./platform-parts.ts";

const shared: BuildOptions = {
  bundle: true,
  minify: true,
  legalComments: "none",
  platform: "node",
  target: "node24",
  // Node 24 has it; what esbuild 0.28 makes of `await using` in a loop throws the error of one turn at the end of the
  // next too.
  supported: { using: true },
  // Else ws looks for faster native packages that no distribution carries.
  define: { "process.env.WS_NO_BUFFER_UTIL": '"1"', "process.env.WS_NO_UTF_8_VALIDATE": '"1"' },
  // The ES module build of the same package: esbuild leaves out what is not used of it.
  alias: { yaml: "./node_modules/yaml/browser/index.js" },
  // The native addon has to stay a package of its own: it finds its .node file beside itself.
  external: ["better-sqlite3", "@bytecodealliance/jco-transpile"],
  logLevel: "warning",
  charset: "ascii",
  metafile: true,
};

const WS_CLIENT = resolve("node_modules/ws/lib/websocket.js");
const WS_SERVER = resolve("node_modules/ws/lib/websocket-server.js");
/** The one file that accepts WebSockets; it is loaded with the first of them. */
const ACCEPTS_WEB_SOCKETS = /\/web-socket-server\.ts$/;

/**
 * Bundles only the client of `ws`, without parts that the tunnel never uses: compression loads `node:zlib`, and `wss:`
 * URLs `node:https` (the tunnel passes a socket that has done TLS already). The server's code, which takes half a MiB,
 * goes to the file that accepts WebSockets.
 */
const leanWebSocket: Plugin = {
  name: "lean ws",
  setup: ({ onResolve, onLoad }) => {
    onResolve({ filter: /^ws$/ }, ({ importer }) => ({
      path: ACCEPTS_WEB_SOCKETS.test(importer) ? "ws server" : "ws",
      namespace: "lean-ws",
    }));
    onResolve({ filter: /^\.\/permessage-deflate$/ }, () => ({ path: "permessage-deflate", namespace: "lean-ws" }));
    onResolve({ filter: /^https$/ }, () => ({ path: "https", namespace: "lean-ws" }));
    onLoad({ filter: /.*/, namespace: "lean-ws" }, ({ path }) => ({
      contents:
        path === "ws"
          ? `import WebSocket from ${JSON.stringify(WS_CLIENT)}; export { WebSocket };`
          : path === "ws server"
            ? `import WebSocketServer from ${JSON.stringify(WS_SERVER)}; export { WebSocketServer };`
            : `module.exports = class { static extensionName = ${JSON.stringify(path)} };`,
      resolveDir: dirname(WS_CLIENT),
    }));
  },
};

/**
 * Two packages are files of their own: YAML's parser, which is as large as all of edgectl, for the few commands and the
 * update that read it; and the HTTP client, which two programs have.
 */
const packagesBeside: Plugin = {
  name: "packages beside",
  setup: ({ onResolve }) =>
    onResolve({ filter: /^(?:yaml|undici)$/ }, ({ path }) => ({ path: `./${path}.cjs`, external: true })),
};

const boardPrograms: readonly BuildOptions[] = [
  {
    entryPoints: { edgectl: "agent/cli/edgectl.ts", "picolet-update": "agent/updates/program/update-main.ts" },
    format: "cjs",
    outExtension: { ".js": ".cjs" },
    plugins: [leanWebSocket, packagesBeside],
  },
  { entryPoints: { yaml: "yaml", undici: "undici" }, format: "cjs", outExtension: { ".js": ".cjs" } },
  // CommonJS: the loader of ES modules would cost 0.6 MiB.
  {
    entryPoints: {
      "wasm-dense": "runtime-adapters/wasm/dense/dense-main.ts",
      "wasm-pull": "runtime-adapters/wasm/pull/pull-main.ts",
      "wasm-devices": "runtime-adapters/wasm/devices/devices-main.ts",
    },
    format: "cjs",
    outExtension: { ".js": ".cjs" },
    plugins: [packagesBeside],
  },
  // They load jco, which is ES modules.
  {
    entryPoints: {
      "wasm-transpile": "runtime-adapters/wasm/transpile/transpile-main.ts",
      "component-tool": "agent/main/component-tool/component-tool.ts",
    },
    format: "esm",
    outExtension: { ".js": ".mjs" },
  },
];

const hubPrograms: readonly BuildOptions[] = [
  // An ES module: what it is made of are ES modules, and one of them waits at its top level. Its `import()`s are files
  // of their own, in a folder beside it.
  {
    entryPoints: { "picolet-hub": "hub/main/picolet-hub.ts" },
    format: "esm",
    splitting: true,
    chunkNames: "picolet-hub/[name]-[hash]",
    outExtension: { ".js": ".mjs" },
    banner: { js: 'import{createRequire}from"node:module";const require=createRequire(import.meta.url);' },
  },
  // A thread of the hub, found beside it.
  {
    entryPoints: { "yaml-worker": "hub/embedded/http/yaml-worker.ts" },
    format: "esm",
    outExtension: { ".js": ".mjs" },
  },
];

/**
 * The launchers find Node and the program by their own place, and set what has to be there before Node starts:
 * allocator settings and V8 flags that keep resident memory small (`docs/decisions/memory.md` has the figures).
 */
const launcher = (program: string, environment: string, flags: string): string => `#!/bin/sh
# Starts ${parse(program).name} on the Node beside it; PICOLET_NODE names another one.
self=$(readlink -f "$0")
lib=\${self%/*/*}/lib
${environment}exec "\${PICOLET_NODE:-$lib/node}" ${flags}"$lib/${program}" "$@"
`;

// Blocks of a page and more go back to the kernel when they are freed: 2 MiB less after fifty pods were started.
export const AGENT_ENVIRONMENT =
  "export MALLOC_ARENA_MAX=1 MALLOC_TRIM_THRESHOLD_=131072 MALLOC_MMAP_THRESHOLD_=4096 UV_THREADPOOL_SIZE=1\nexport CBOR_NATIVE_ACCELERATION_DISABLED=true\n" +
  "export SSL_CERT_FILE=/dev/null SSL_CERT_DIR=/nonexistent\nunset NODE_EXTRA_CA_CERTS\n";
// A hub is verified against its own CA. Node would parse the 140 CAs it brings as soon as `node:tls` is loaded, those
// of the system, or those that its environment names: 0.75 MiB (Node 24.21) for nothing. With these none are found.
// Code that has not run for three collections is dropped, instead of six, and compiled again when it runs: after a
// burst the agent makes four in a row, at rest two. Regular expressions stay bytecode: one of Node's for IPv6 addresses
// becomes 160 KiB of machine code as soon as it runs for the second time.
export const AGENT_FLAGS =
  "--use-openssl-ca --max-semi-space-size=1 --optimize-for-size --no-opt --no-maglev --no-sparkplug --v8-pool-size=1 --max-old-space-size=48 --bytecode-old-age=3 --regexp-interpret-all --expose-gc ";

/** The types of the API that the embedded API server checks and describes, out of the client library's own. */
function kubernetesModels(): string {
  const models = new FolderModelSource("node_modules/@kubernetes/client-node/dist/gen/models");
  return gatherModels(models, modelRoots(embeddedResources({ serviceAccountTokens: true })));
}

/**
 * The heap of a hub with thousands of sessions: a young generation of 4 MiB instead of 64 saves 20 KiB an agent. The
 * old generation may grow by a fifth of the live objects before it is collected, not to a multiple: what it reaches in
 * a storm stays resident. With 1,000 agents that is a collection every 29 s at rest, and 9 KiB an agent less than with
 * a half.
 */
export const HUB_FLAGS = "--max-semi-space-size=4 --heap-growing-percent=20 ";
// Each connection has a buffer of 64 KiB to read into, of which it touches a page or two. Only mappings of their own
// keep the rest of it out of memory: blocks of the heap have been written to before. glibc maps what is above the
// threshold and does not fit at the top of the heap, which it makes 128 KiB larger than needed unless the pad is 0. The
// threshold is above what OpenSSL keeps of a connection (4.4, 4.4, 5.6 and 6.1 KiB), which would take two pages each.
// One arena, so that there is one heap. A process may have 65,530 mappings.
export const HUB_ENVIRONMENT =
  "export MALLOC_ARENA_MAX=1 MALLOC_TRIM_THRESHOLD_=131072 MALLOC_MMAP_THRESHOLD_=8192 MALLOC_MMAP_MAX_=32768 MALLOC_TOP_PAD_=0\n";

/** A program with each `import()` of it as a file of its own, in a folder beside it that has its name. */
interface DividedProgram {
  readonly name: string;
  readonly entry: string;
}

const AGENT = { name: "picolet", entry: "agent/main/picolet.ts" };

const dividedPrograms: readonly DividedProgram[] = [
  AGENT,
  // Most components have neither network nor services of the board: 0.3 MiB less of each runner. Its jail has the
  // folder.
  { name: "wasm-runner", entry: "runtime-adapters/wasm/runner/runner-main.ts" },
];

interface ProgramFiles {
  readonly files: readonly ProgramFile[];
  readonly metafile: Metafile | undefined;
}

interface ProgramFile {
  readonly path: string;
  readonly code: string;
  /** As JSON; "" where none was asked for. */
  readonly map: string;
}

/** The agent's, with source maps, by which its memory is attributed; the hashes in its code are others. */
export const agentFilesWithMaps = (): Promise<ProgramFiles> => dividedFiles(AGENT, LIBRARY, "with maps");

/**
 * What is not loaded costs nothing: V8 keeps the source of a file that it has seen, and a record of each function.
 * esbuild divides ES modules alone, so each of them becomes CommonJS afterwards. Their names hold a hash: a program
 * that runs never loads a part of another build.
 */
async function dividedFiles(
  { name, entry }: DividedProgram,
  outdir: string,
  maps: "with maps" | "without maps" = "without maps",
): Promise<ProgramFiles> {
  const sourcemap = maps === "with maps" ? "inline" : false;
  const options = {
    ...shared,
    entryPoints: { [name]: entry },
    outdir,
    chunkNames: `${name}/[name]-[hash]`,
    format: "esm",
    outExtension: { ".js": ".cjs" },
    splitting: true,
    write: false,
    metafile: true,
    sourcemap,
    sourcesContent: false,
  } satisfies BuildOptions;
  const { metafile } = await build({ ...options, plugins: [leanWebSocket] });
  const divided = await build({ ...options, plugins: [leanWebSocket, besides(partsOf(metafile, entry), entry)] });
  const { minify, platform, target, charset, legalComments, supported } = shared;
  const common = { minify, platform, target, charset, legalComments } as TransformOptions;
  const files: ProgramFile[] = [];
  for (const { path, text } of divided.outputFiles) {
    // `import()` becomes `require()` too: the loader of ES modules is never needed.
    const { code, map } = await transform(withPlainExports(text), {
      ...common,
      format: "cjs",
      supported: { ...supported, "dynamic-import": false },
      sourcemap: sourcemap === false ? false : "external",
      sourcesContent: false,
    });
    files.push({ path, code, map });
  }
  return { files, metafile: divided.metafile };
}

/**
 * The same file with `import()`s and exports as CommonJS has them. esbuild makes two getters for each export, because
 * its variable may change, and two more for each `import()`: 0.2 MiB in the agent. Files never need each other in a
 * circle, because those that the same files need are one.
 * @param text an ES module that esbuild wrote
 */
export function withPlainExports(text: string): string {
  const loads = text.replace(/\bimport\(("\.[^"]+")\)/g, "Promise.resolve().then(()=>require($1))");
  // A source map may follow.
  const found = /\bexport\{([^}]+)\};(?=\s*(?:\/\/.*\s*)?$)/.exec(loads);
  if (found === null) return loads;
  const code = loads.slice(0, found.index);
  const changing = changingVariables(code);
  const [values, getters]: [string[], string[]] = [[], []];
  for (const each of (found[1] ?? "").split(",")) {
    const [local = "", name = local] = each.split(" as ");
    if (changing.has(local)) getters.push(each);
    else values.push(`${name}:${local}`);
  }
  const made = values.join(",");
  const statement =
    getters.length === 0
      ? `module.exports={__esModule:!0,${made}};`
      : `Object.assign(module.exports,{${made}});export{${getters.join(",")}};`;
  return code + statement + loads.slice(found.index + found[0].length);
}

interface Syntax {
  readonly type?: string;
  readonly name?: string;
  readonly [field: string]: unknown;
}

/**
 * The variables whose value may differ from what it is at the end of the file's first run: those written anywhere but
 * in a declaration with a value. A variable of an inner scope counts for all of its name.
 */
function changingVariables(text: string): ReadonlySet<string> {
  const found = new Set<string>();
  const addNames = (pattern: unknown): void => {
    for (const name of writtenNames(pattern)) found.add(name);
  };
  for (const node of syntaxIn(parseSync("part.js", text, { sourceType: "module" }).program)) {
    if (node.type === "AssignmentExpression" || node.type === "ForInStatement" || node.type === "ForOfStatement")
      addNames(node.left);
    if (node.type === "UpdateExpression") addNames(node.argument);
    if (node.type === "VariableDeclarator" && node.init === null) addNames(node.id);
  }
  return found;
}

function* writtenNames(pattern: unknown): Iterable<string> {
  if (typeof pattern !== "object" || pattern === null) return;
  const { type, name, key: _, ...parts } = pattern as Syntax;
  if (type === "Identifier" && name !== undefined) yield name;
  // A field of an object is written, not the variable.
  if (type !== "MemberExpression") for (const part of Object.values(parts)) yield* writtenNames(part);
}

function* syntaxIn(value: unknown): Iterable<Syntax> {
  if (Array.isArray(value)) for (const each of value) yield* syntaxIn(each);
  else if (typeof value === "object" && value !== null) {
    yield value as Syntax;
    for (const each of Object.values(value)) yield* syntaxIn(each);
  }
}

/** Source files that a program loads with `import()`. */
const partsOf = ({ outputs }: Metafile, entry: string): ReadonlySet<string> =>
  new Set(Object.values(outputs).flatMap(({ entryPoint = entry }) => (entryPoint === entry ? [] : [entryPoint])));

/**
 * Parts are loaded by a program that has the whole of `entry` already. To esbuild each of them needs all of it, so that
 * it makes one file of it instead of one for each set of parts that share a piece.
 */
const besides = (parts: ReadonlySet<string>, entry: string): Plugin => ({
  name: `besides ${entry}`,
  setup: ({ onLoad }) =>
    onLoad({ filter: /\.ts$/ }, ({ path }) =>
      parts.has(relative(".", path))
        ? { contents: `${readFileSync(path, "utf8")}\nimport ${JSON.stringify(resolve(entry))};`, loader: "ts" }
        : undefined,
    ),
});

/** One character beyond Latin-1 would make V8 keep the whole source in two bytes a character. */
function requireAscii(path: string, code: string): void {
  if (Buffer.from(code).some((byte) => byte > 127)) throw new Error(`${path} is not ASCII`);
}

const FOLDERS = { board: "dist/board", hub: "dist/hub" } as const;
type DistributionName = keyof typeof FOLDERS;
const LIBRARY = `${FOLDERS.board}/lib`;

/** Those of this machine's platform are `dist/board` and `dist/hub`, another's `dist/linux-arm64/board` … */
export const distributionFolder = (name: DistributionName, platform = ownPlatform()): string =>
  platform === ownPlatform() ? FOLDERS[name] : `dist/${platform}/${name}`;

/**
 * For one platform. @returns the folders of both distributions
 * @param bundles "kept" takes those of an earlier build of the same sources; what is released is bundled each time
 */
export async function buildPrograms(
  platform = ownPlatform(),
  bundles: "made" | "kept" = "made",
): Promise<readonly string[]> {
  const make = bundles === "kept" ? keptBundles : madeBundles;
  await using _ = await takeTurn();
  return [await buildBoard(platform, make), await buildHub(platform, make)];
}

/** Builds of one checkout take turns, because each removes from `dist` what it did not write. */
function takeTurn(): Promise<FileLock> {
  mkdirSync("dist", { recursive: true });
  return FileLock.take("dist/build.lock");
}

type BundleMaker = (root: string, make: () => Promise<Bundles>) => Promise<Bundles>;
const madeBundles: BundleMaker = (_, make) => make();

async function buildBoard(platform: Platform, bundlesOf: BundleMaker): Promise<string> {
  const root = distributionFolder("board", platform);
  const board = new Distribution(root, platform);
  const { files, metafiles } = await bundlesOf(root, () => boardBundles(root));
  for (const { path, content } of files) board.write(path, content);
  board.write("bin/picolet", launcher("picolet.cjs", AGENT_ENVIRONMENT, AGENT_FLAGS), 0o755);
  board.write("bin/edgectl", launcher("edgectl.cjs", "", "--max-semi-space-size=1 "), 0o755);
  board.add("wit", "wit/board");
  for (const [path, text] of boardDocuments()) board.write(path, text);
  complete(board, metafiles, [sqlite(platform), jco, koffi(platform), onnxRuntime], platform);
  return root;
}

async function boardBundles(root: string): Promise<Bundles> {
  const bundled: BundledFile[] = [];
  const metafiles = [];
  for (const program of dividedPrograms) {
    const { files, metafile } = await dividedFiles(program, join(root, "lib"));
    for (const { path, code } of files) {
      requireAscii(path, code);
      bundled.push({ path: relative(resolve(root), path), content: code });
    }
    metafiles.push(metafile);
  }
  const others = await bundlesAt(root, boardPrograms);
  for (const { path, content } of others.files)
    if (path === "lib/edgectl.cjs") requireAscii(path, Buffer.from(content).toString("utf8"));
  const files = [...bundled, ...others.files, ...(await pageAt("lib/page", "board"))];
  return { files, metafiles: [...metafiles.filter((each) => each !== undefined), ...others.metafiles] };
}

async function buildHub(platform: Platform, bundlesOf: BundleMaker): Promise<string> {
  const root = distributionFolder("hub", platform);
  const hub = new Distribution(root, platform);
  const { files, metafiles } = await bundlesOf(root, () => hubBundles(root));
  for (const { path, content } of files) hub.write(path, content);
  hub.write("bin/picolet-hub", launcher("picolet-hub.mjs", HUB_ENVIRONMENT, HUB_FLAGS), 0o755);
  for (const [path, text] of hubDocuments()) hub.write(path, text);
  complete(hub, metafiles, [sqlite(platform)], platform);
  return root;
}

async function hubBundles(root: string): Promise<Bundles> {
  const { files, metafiles } = await bundlesAt(root, hubPrograms);
  const models = { path: "lib/kubernetes-models.json", content: kubernetesModels() };
  const pages = [...(await pageAt("lib/page/board", "board")), ...(await pageAt("lib/page/fleet", "fleet"))];
  return { files: [...files, models, ...pages], metafiles };
}

async function pageAt(folder: string, page: PageName): Promise<readonly BundledFile[]> {
  return (await pageFiles(page)).map(({ name, content }) => ({ path: join(folder, name), content }));
}

async function bundlesAt(root: string, programs: readonly BuildOptions[]): Promise<Bundles> {
  const files: BundledFile[] = [];
  const metafiles: Metafile[] = [];
  for (const program of programs) {
    const result = await build({ ...shared, ...program, outdir: join(root, "lib"), write: false });
    for (const { path, contents } of result.outputFiles)
      files.push({ path: relative(resolve(root), path), content: contents });
    if (result.metafile !== undefined) metafiles.push(result.metafile);
  }
  return { files, metafiles };
}

/** Bundles one program of CommonJS, without what the distributions carry beside theirs. */
export async function bundleProgram(entry: string, outfile: string): Promise<void> {
  await build({ ...shared, entryPoints: [entry], outfile, format: "cjs" });
}

const PLATFORM = parsedFlag(
  { name: "platform", value: "PLATFORM", help: `${PLATFORMS.join(" or ")} (default: this machine's)` },
  platformOf,
);

function megabytesOf(folder: string): string {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((each) => each.isFile());
  const bytes = files.reduce((sum, { parentPath, name }) => sum + statSync(join(parentPath, name)).size, 0);
  return `${(bytes / 1e6).toFixed(1)} MB`;
}

async function main(): Promise<void> {
  const input = readOptions({
    name: "build",
    summary: "makes dist/board and dist/hub, and the examples where they are of this machine's platform",
    flags: [PLATFORM, { name: "all", help: "for every platform" }],
  });
  const platforms = input.flag("all") ? PLATFORMS : [input.value(PLATFORM) ?? ownPlatform()];
  for (const platform of platforms) {
    for (const folder of await buildPrograms(platform, "kept"))
      console.log(`${folder}: ${platform}, ${megabytesOf(folder)}`);
    if (platform !== ownPlatform()) continue;
    await using _ = await takeTurn();
    const examples = await buildExamples();
    buildContainerExample();
    const components = examples.map((name) => `${name}.wasm`).join(", ");
    console.log(`dist/examples: ${components}; dist/images: the image of examples/web`);
  }
}

if (import.meta.main) {
  await main().catch((error: unknown) => {
    console.error(describeError(error));
    process.exit(1);
  });
}
