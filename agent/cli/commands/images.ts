/** `edgectl image`: its commands, and `edgectl images`. */

import type { Flag } from "@picolet/protocol/command-line/program.ts";
import { type Command, NO_HEADERS, output } from "../context/command.ts";

const IMAGE_LIST = {
  access: "view",
  summary: "list images on this node, of all runtimes",
  details: `Running pulls come first, with their progress where the runtime reports it, and
prefetches: of images that the annotation picolet.io/prefetch of the Node object
or of a pod names. -o wide shows whole digests and which images are pinned.`,
  flags: [output("json", "yaml", "wide"), NO_HEADERS],
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

const RUNTIME: Flag = {
  name: "runtime",
  value: "NAME",
  help: "cri or wasm; without it the one that has or can run it",
};

const imagePull: Command = {
  words: ["image", "pull"],
  access: "operate",
  operands: "REF",
  atLeast: 1,
  atMost: 1,
  summary: "pull an image from its registry now",
  details: `Shows the progress; Ctrl-C cancels the pull. It uses the node's own registry
configuration and credential plugins, and pull secrets that pods of this node
name. -o json has names, digests and sizes.`,
  flags: [
    RUNTIME,
    {
      name: "namespace",
      short: "n",
      value: "NAMESPACE",
      help: "the namespace of the secrets",
      default: "default",
      completes: "namespaces",
    },
    { name: "secret", value: "NAMES", help: "pull secrets, separated by commas" },
    output("json", "yaml"),
  ],
  examples: [
    ["edgectl image pull registry.example/app:2", "before a rollout"],
    ["edgectl image pull registry.example/app:2 -n shop --secret pull", "a private one"],
  ],
  run: async (context, input) => (await import("./image-pull-commands.ts")).runImagePull(context, input),
};

const imageRemove: Command = {
  words: ["image", "rm"],
  access: "operate",
  operands: "REF...",
  atLeast: 1,
  atMost: 100,
  summary: "remove images, with all of their names",
  details: "REF is a name or an id. One that is pinned, or that a container uses, is kept.",
  flags: [RUNTIME, { name: "force", help: "remove images that are pinned or used too" }, output("json", "yaml")],
  examples: [["edgectl image rm registry.example/app:1", "the image and all of its other names"]],
  run: async (context, input) => (await import("./image-pull-commands.ts")).runImageRemove(context, input),
};

const pinning = (word: "pin" | "unpin", summary: string, example: string): Command => ({
  words: ["image", word],
  access: "operate",
  operands: "REF...",
  atLeast: 1,
  atMost: 100,
  summary,
  details: `The name counts, not the image that has it now: the image may come later. The
list is kept on disk; edgectl images -o json shows it.`,
  flags: [output("json", "yaml")],
  examples: [[`edgectl image ${word} registry.example/app:2`, example]],
  run: async (context, input) => (await import("./image-pull-commands.ts")).runImagePin(context, input, word === "pin"),
});

const imagePin = pinning("pin", "keep images, however full the disk is", "it stays");
const imageUnpin = pinning("unpin", "let unused images be removed again", "it may go");

const imageImport: Command = {
  words: ["image", "import"],
  access: "admin",
  operands: "FILE",
  atLeast: 1,
  atMost: 1,
  summary: "import an image from a file, without a network",
  details: `FILE is an OCI or docker archive, or one .wasm component, on this machine. The
runtime that can run it takes it.`,
  flags: [{ name: "name", value: "REF", help: "the image's name, where the file has none" }, output("json", "yaml")],
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
