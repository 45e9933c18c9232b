/** `edgectl image`: its commands, and `edgectl images`. */
import { type Command, NO_HEADERS, output } from "../context/command.ts";
import type { Flag } from "../context/command-line.ts";

const IMAGE_LIST = {
  operands: "",
  atLeast: 0,
  atMost: 0,
  summary: "images on this node, of all runtimes",
  details: `First what is being pulled, with how far it is where the runtime tells, and what
is to be prefetched: images that the annotation picolet.io/prefetch of the Node
object, or of a pod, names. -o wide shows whole digests and what is pinned.`,
  flags: [output("json", "yaml", "wide"), NO_HEADERS],
  completes: [],
  run: async (context, input) => (await import("./image-list-commands.ts")).runImageList(context, input),
} satisfies Omit<Command, "words" | "examples">;

const imageList: Command = {
  ...IMAGE_LIST,
  words: ["image", "list"],
  examples: [["edgectl image list", "containers' and components' images"]],
};

const images: Command = {
  ...IMAGE_LIST,
  words: ["images"],
  examples: [["edgectl images", "the same as edgectl image list"]],
};

const RUNTIME: Flag = { name: "runtime", value: "NAME", help: "cri or wasm; else whichever it concerns" };

const imagePull: Command = {
  words: ["image", "pull"],
  operands: "REF",
  atLeast: 1,
  atMost: 1,
  summary: "get an image from its registry now",
  details: `Shows how far it is; Ctrl-C gives it up. With the node's own registry
configuration and credential plugins, and with pull secrets that pods of this
node name. Names, digests and sizes are in -o json.`,
  flags: [
    RUNTIME,
    { name: "namespace", short: "n", value: "NAMESPACE", help: "of the secrets (default default)" },
    { name: "secret", value: "NAMES", help: "pull secrets, separated by commas" },
    output("json", "yaml"),
  ],
  examples: [
    ["edgectl image pull registry.example/app:2", "before a rollout"],
    ["edgectl image pull registry.example/app:2 -n shop --secret pull", "a private one"],
  ],
  completes: [],
  run: async (context, input) => (await import("./image-pull-commands.ts")).runImagePull(context, input),
};

const imageRemove: Command = {
  words: ["image", "rm"],
  operands: "REF...",
  atLeast: 1,
  atMost: 100,
  summary: "remove images, with all of their names",
  details: "REF is a name or an id. One that is pinned, or that a container uses, is kept.",
  flags: [RUNTIME, { name: "force", help: "also one that is pinned or used" }, output("json", "yaml")],
  examples: [["edgectl image rm registry.example/app:1", "the image and all of its other names"]],
  completes: [],
  run: async (context, input) => (await import("./image-pull-commands.ts")).runImageRemove(context, input),
};

const pinning = (word: "pin" | "unpin", summary: string, example: string): Command => ({
  words: ["image", word],
  operands: "REF...",
  atLeast: 1,
  atMost: 100,
  summary,
  details: `Of the name, not of what it stands for now: an image of that name may come
later. The list is kept on disk; edgectl images -o json has it.`,
  flags: [output("json", "yaml")],
  examples: [[`edgectl image ${word} registry.example/app:2`, example]],
  completes: [],
  run: async (context, input) => (await import("./image-pull-commands.ts")).runImagePin(context, input, word === "pin"),
});

const imagePin = pinning("pin", "keep images, however full the disk is", "it stays");
const imageUnpin = pinning("unpin", "keep images no longer than they are used", "it may go");

const imageImport: Command = {
  words: ["image", "import"],
  operands: "FILE",
  atLeast: 1,
  atMost: 1,
  summary: "take an image from a file, with no network",
  details: `FILE is an OCI or docker archive, or one .wasm component, on this machine. The
runtime that can run it takes it.`,
  flags: [{ name: "name", value: "REF", help: "what to call it, where the file does not say" }, output("json", "yaml")],
  examples: [
    ["edgectl image import app.tar", "an archive with its names in it"],
    ["edgectl image import hello.wasm --name example/hello:1", "a component"],
  ],
  completes: ["files"],
  run: async (context, input) => (await import("./image-list-commands.ts")).runImageImport(context, input),
};

export const IMAGE_COMMANDS: readonly Command[] = [
  images,
  imageList,
  imagePull,
  imageImport,
  imageRemove,
  imagePin,
  imageUnpin,
];
