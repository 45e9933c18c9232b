import type {
  UpdateHoldRequest,
  UpdateInstallAnswer,
  UpdateInstallRequest,
  UpdateStatusAnswer,
} from "@picolet/protocol/local-api/status.ts";

/** Updates of this board, for the local API. `agent/updates` implements it. */
export interface UpdateControl {
  status(): Promise<UpdateStatusAnswer>;
  /** Keeps the board from restarting for an update; replaces a hold of before. */
  hold(request: UpdateHoldRequest): Promise<UpdateStatusAnswer>;
  release(): Promise<UpdateStatusAnswer>;
  /** @throws `invalid`, `conflict`, and what is wrong with the file */
  install(request: UpdateInstallRequest, signal: AbortSignal): Promise<UpdateInstallAnswer>;
}
