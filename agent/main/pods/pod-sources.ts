import type { Component } from "@picolet/protocol/async/component.ts";
import type { Watch } from "@picolet/protocol/async/watch.ts";
import type { SourceProblem } from "@picolet/protocol/local-api/status.ts";
import { type PushedPods, SESSION_ORIGIN } from "../../core/pods/pushed-pods.ts";
import { FileSource } from "../../sources/files/file-source.ts";
import type { AgentBase } from "../base/agent-base.ts";

type PodSource = Component & {
  readonly problems: Watch<readonly SourceProblem[]>;
  readonly warnings: Watch<readonly SourceProblem[]>;
};

/** Where this node's own pods come from: manifests in a folder, and those of a URL. */
export async function makeSources({
  ports,
  init,
  store: { desired: store, events },
  decisions,
}: AgentBase): Promise<readonly PodSource[]> {
  const { staticPodPath: path, nodeName, staticPodURL: url, fileCheckFrequency: checkFrequency } = init.configuration;
  const components = { ...ports, store, events, decisions };
  const files = path === "" ? [] : [new FileSource(components, { path, nodeName, checkFrequency })];
  if (url === "") {
    // Pods of a URL that is no longer configured: no source would ever remove them.
    const isLeft = [...store.desired.current.pods.values()].some(({ source }) => source === "http");
    if (isLeft) store.replace("http", store.revision("http") + 1, []);
    return files;
  }
  const [{ HttpSource }, { SYSTEM_CA_FILES: caFiles }] = await Promise.all([
    import("../../sources/http-source.ts"),
    import("../../sources/http-fetch.ts"),
  ]);
  const { httpCheckFrequency, staticPodURLHeader: headers } = init.configuration;
  return [
    ...files,
    new HttpSource(components, { url, headers, checkFrequency: httpCheckFrequency, nodeName, caFiles }),
  ];
}

/** Pods pushed by users. The source is loaded with the first push. Pods of the previous agent's sessions are removed. */
export function pushedPods({ ports: { clock, log }, init, store: { desired: store } }: AgentBase): PushedPods {
  const { nodeName } = init.configuration;
  const pushed = [...store.desired.current.pods.values()].filter(({ source }) => source === "push");
  const lasting = pushed.filter(({ origin }) => origin !== SESSION_ORIGIN);
  if (lasting.length < pushed.length) store.replace("push", store.revision("push") + 1, lasting);
  const source = async (): Promise<PushedPods> => {
    const { PushSource } = await import("../../sources/push-source.ts");
    return new PushSource({ clock, log, store }, { nodeName });
  };
  return {
    replace: async (text, options) => (await source()).replace(text, options),
    add: async (text) => (await source()).add(text),
    remove: async (uid) => (await source()).remove(uid),
  };
}
