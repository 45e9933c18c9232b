/** The part of the made-up volume type that the agent has. */
import { mkdir, writeFile } from "node:fs/promises";
import type { VolumeType } from "@picolet/agent/volumes/types/volume-type.ts";
import type { Volume } from "@picolet/protocol/pod/pod.ts";

const FOLDER = "note";

/** The table of the real model has no such type, so its field is unknown to the compiler. */
const sourceOf = (volume: Volume) => (volume as unknown as { note: { text: string; mode: number } }).note;

export const note: VolumeType = {
  folder: FOLDER,
  isRefreshed: true,
  diskUse: () => ({ sizeLimit: "1Ki" }),
  makeHandler: ({ paths, log }) => ({
    plan: (pod, volume) => async () => {
      const { text, mode } = sourceOf(volume);
      const folder = paths.volume(pod.uid, FOLDER, volume.name);
      await mkdir(folder, { recursive: true });
      await writeFile(`${folder}/text`, text, { mode });
    },
    locate: ({ uid }, { name }) => ({ path: paths.volume(uid, FOLDER, name), readOnly: true }),
    forget: (uid) => log.info("forgotten", { uid }),
  }),
};
