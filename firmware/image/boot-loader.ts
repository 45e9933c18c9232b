/** A boot loader: its partitions, its files in a slot, and those outside of it. */
import type { Tools } from "./build-tools.ts";
import type { Partition, PartitionTable } from "./disk-image.ts";

export interface BootLoader {
  readonly table: PartitionTable;
  /** Their numbers follow from their order. */
  readonly partitions: readonly Partition[];
  /** Sorts out what the extracted packages have for it. `tree` is a folder of the tools' work. */
  prepareTree(tools: Tools, tree: string): void;
  /** Kernel, RAM disk and commands of the finished system, in `boot/` of the tree. */
  finishSlot(tools: Tools, tree: string, epoch: number): void;
  /** Makes the FAT partitions that `partitions` names, in the tools' work folder. */
  makeFats(tools: Tools, tree: string, seed: string, epoch: number): void;
}
