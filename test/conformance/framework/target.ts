/** The node that is tested, and the images for it. */

export interface Images {
  /** `/bin/sh` and the usual programs. */
  readonly busybox: string;
  /** The same programs under another name. */
  readonly other: string;
  /** The same, of an image that says it runs as user 1234. */
  readonly nonroot: string;
  /**
   * `image/tool.c` as `/tool` and `/tool-setuid`; entrypoint `/tool argv`, command `default arguments`; busybox as
   * well.
   */
  readonly tool: string;
  /** OpenSSL and busybox; "": tests of HTTPS are skipped. */
  readonly https: string;
  /** busybox in a registry, for pulls; "": tests of pulls are skipped. */
  readonly pullable: string;
  /** busybox in a registry that requires `pullSecret`; "": as above. */
  readonly private: string;
  /** The component `test/components/script.c`, for pods with `runtimeClassName: wasm`; "": their tests are skipped. */
  readonly component: string;
  /** The same of `test/components/http-server.c`. */
  readonly componentServer: string;
}

export const IMAGE_KEYS = [
  "busybox",
  "other",
  "nonroot",
  "tool",
  "https",
  "pullable",
  "private",
  "component",
  "componentServer",
] as const satisfies readonly (keyof Images)[];

export interface Target {
  readonly kubeconfig: string;
  readonly node: string;
  readonly images: Images;
  /** A `.dockerconfigjson` for `images.private`; "": none. */
  readonly pullSecret: string;
  /** The folder of the node with links to the logs of all its containers, where collectors look for them. */
  readonly containerLogs: string;
  /** The node's folder with `device-plugins`, `plugins_registry` and `pod-resources`; "": their tests are skipped. */
  readonly kubeletRoot: string;
  /** Multiplies all time limits: 1 for a real machine, more for an emulated one. */
  readonly slowness: number;
}
