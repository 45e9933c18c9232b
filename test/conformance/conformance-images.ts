/** The images that the tests' pods are made of: built here of a node's programs, and given to that node. */
import { execFileSync } from "node:child_process";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { buildImageArchive, type ImageRecipe } from "@picolet/scripts/build/build-image-archive.ts";
import { REGISTRY_PASSWORD, REGISTRY_USER, type Registry } from "../support/containerd/real-registry.ts";
import { testComponent } from "../support/wasm/components.ts";
import type { Images } from "./framework/target.ts";

export const TOOL_SOURCE = fileURLToPath(new URL("image/tool.c", import.meta.url));

/** Programs of the node's architecture, as files of this machine. */
export interface ImagePrograms {
  /** The Go name. */
  readonly architecture: "amd64" | "arm64";
  readonly busybox: string;
  /** `image/tool.c`, static. */
  readonly tool: string;
  /** OpenSSL with its libraries: path in the image → file. Undefined: tests of HTTPS are skipped. */
  readonly https: Readonly<Record<string, string>> | undefined;
}

/** The images of the node. */
export interface ImageStore {
  importArchive(archive: string): Promise<void> | void;
  /** Moves one to the registry's open address. @returns its name there */
  push(image: string, repository: string): Promise<string> | string;
}

/** Images of containers for a node that has none of their runtimes. */
export const NO_CONTAINER_IMAGES = {
  ...{ busybox: "", other: "", nonroot: "", tool: "", https: "", pullable: "", private: "" },
} as const;

type ComponentImages = Pick<Images, "component" | "componentServer">;

/** @param place the file's path on the node, where this has put it */
export async function componentImages(place: (file: string) => Promise<string> | string): Promise<ComponentImages> {
  const [component, componentServer] = [await testComponent("script.c"), await testComponent("http-server.c")];
  return {
    component: `file://${await place(resolve(component))}`,
    componentServer: `file://${await place(resolve(componentServer))}`,
  };
}

/** @param folder to build in */
export async function provideImages(
  store: ImageStore,
  programs: ImagePrograms,
  registry: Registry,
  folder: string,
): Promise<Omit<Images, keyof ComponentImages>> {
  const { architecture, busybox, tool, https } = programs;
  const applets = execFileSync("/bin/busybox", ["--list"], { encoding: "utf8" }).trim().split("\n");
  const links = Object.fromEntries(
    applets.filter((applet) => applet !== "busybox").map((each) => [`bin/${each}`, "busybox"]),
  );
  const base = { files: { "bin/busybox": busybox }, links, command: ["/bin/sh"], architecture };
  const give = async (name: string, recipe: Omit<ImageRecipe, "name">): Promise<string> => {
    const full = `localhost/conformance/${name}:1`;
    await store.importArchive(buildImageArchive({ name: full, ...recipe }, folder));
    return full;
  };
  // With content of their own: what was pulled with a secret is not to be what others find at hand.
  const push = async (name: string): Promise<string> => {
    const files = { ...base.files, [`etc/${name}`]: TOOL_SOURCE };
    return await store.push(await give(name, { ...base, files }), `conformance/${name}:1`);
  };
  return {
    busybox: await give("busybox", base),
    other: await give("other", { ...base, environment: ["OTHER=yes"] }),
    nonroot: await give("nonroot", { ...base, user: "1234" }),
    tool: await give("tool", {
      files: { ...base.files, tool, "tool-setuid": tool },
      ...{ links, architecture },
      entrypoint: ["/tool", "argv"],
      command: ["default", "arguments"],
      setuid: ["tool-setuid"],
    }),
    https: https === undefined ? "" : await give("https", { ...base, files: { ...base.files, ...https } }),
    pullable: await push("pullable"),
    private: (await push("private")).replace(registry.address, registry.privateAddress),
  };
}

/** A `.dockerconfigjson` for a registry's private address. */
export const pullSecretFor = (registry: string): string => {
  const auth = Buffer.from(`${REGISTRY_USER}:${REGISTRY_PASSWORD}`).toString("base64");
  return JSON.stringify({ auths: { [registry]: { auth } } });
};

/** Compiles the tests' program for this machine. */
export function compileTool(folder: string): string {
  const tool = join(folder, "tool");
  execFileSync("clang", ["-Os", "-static", "-s", "-o", tool, TOOL_SOURCE], { stdio: "ignore" });
  return tool;
}
