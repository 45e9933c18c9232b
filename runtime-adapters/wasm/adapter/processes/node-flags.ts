/**
 * How the two programs of this adapter are run; what each flag saves was measured with the bench of
 * `test/bench/wasm/component-figures.ts`.
 */

/** For V8 and Node in any small process. */
const SMALL_HEAP = [
  // The young generation grows to 16 MiB otherwise.
  "--max-semi-space-size=1",
  "--optimize-for-size",
  // 0 would mean one thread for each processor.
  "--v8-pool-size=1",
];

/** Bounds the freed memory that glibc keeps: one arena, and large blocks go back at once. 0.5 MiB of a runner. */
export const SMALL_PROCESS_ENVIRONMENT: Readonly<Record<string, string>> = {
  MALLOC_ARENA_MAX: "1",
  MALLOC_MMAP_THRESHOLD_: "65536",
  MALLOC_TRIM_THRESHOLD_: "65536",
  MALLOC_TOP_PAD_: "4096",
  UV_THREADPOOL_SIZE: "1",
};

/** JavaScript's own heap of a runner, MiB; 4 are in use. Linear memory is not part of it. */
const RUNNER_HEAP_MIB = 32;
/** Elements of a WebAssembly table, 8 bytes each and outside of linear memory; LLVM's have some thousands, fixed. */
const RUNNER_TABLE_ELEMENTS = 1_000_000;

const RUNNER_ALONE = [
  ...SMALL_HEAP,
  `--wasm-max-table-size=${RUNNER_TABLE_ELEMENTS}`,
  // Compiling and collecting beside the component would need threads of its own; it has but one.
  "--single-threaded",
  // The runner collects what starting left, see `releaseMemory`.
  "--expose-gc",
  "--disallow-code-generation-from-strings",
  "--no-warnings",
];

export const RUNNER_FLAGS: readonly string[] = [...RUNNER_ALONE, `--max-old-space-size=${RUNNER_HEAP_MIB}`];

/**
 * JavaScript's own heap of a process of several components, MiB: 0.1 each while they rest, more while they have
 * buffers.
 */
const DENSE_HEAP_MIB = 256;

export const DENSE_FLAGS: readonly string[] = [...RUNNER_ALONE, `--max-old-space-size=${DENSE_HEAP_MIB}`];

/** JavaScript's own heap of the transpiler, MiB. A component of 12 MiB needs 90. */
const TRANSPILER_HEAP_MIB = 384;

export const TRANSPILER_FLAGS: readonly string[] = [
  ...SMALL_HEAP,
  `--max-old-space-size=${TRANSPILER_HEAP_MIB}`,
  // The generator runs once: optimising it costs memory and twice the time.
  "--liftoff-only",
  "--no-opt",
  "--no-warnings",
];

/** JavaScript's own heap of a pull, MiB. A manifest has 4 at most, everything else is a stream. */
const PULLER_HEAP_MIB = 64;

export const PULLER_FLAGS: readonly string[] = [
  ...SMALL_HEAP,
  `--max-old-space-size=${PULLER_HEAP_MIB}`,
  // Registries' certificates are signed by the authorities of the machine, which its owner may have added to.
  "--use-system-ca",
  "--no-opt",
  // undici's parser is WebAssembly: optimizing it takes 22 MiB.
  "--liftoff-only",
  // A collection frees what it finds before it returns, instead of in another thread: 11 MiB of a pull of 30 over
  // HTTPS.
  "--single-threaded",
  // For `ChunkCollector` in `pull-main.ts`.
  "--expose-gc",
  "--no-warnings",
];

/** JavaScript's own heap of a process that opens one device, MiB. */
const DEVICES_HEAP_MIB = 16;

export const DEVICES_FLAGS: readonly string[] = [
  ...SMALL_HEAP,
  `--max-old-space-size=${DEVICES_HEAP_MIB}`,
  "--no-opt",
  "--no-warnings",
];
