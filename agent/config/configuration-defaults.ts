/**
 * Sets fields that the file does not set: the table's default, or a value that follows from the machine and other
 * fields.
 */
import type { Immutable } from "@picolet/protocol/pod/fields/field-schemas.ts";
import { seconds } from "@picolet/protocol/ports.ts";
import type { BoardDefaults } from "./board-defaults.ts";
import { CONFIGURATION_FIELDS, type Complete, type FieldTable, type Given } from "./configuration-fields.ts";

type Fields = typeof CONFIGURATION_FIELDS;
export type ConfigurationInput = Given<Fields>;
/** Plain data: can be printed, stored and sent as it is. Durations are milliseconds, sizes bytes. */
export type Configuration = Immutable<ReturnType<typeof applyConfigurationDefaults>>;

/**
 * @param hostName the node's name when the file gives none; lower-cased, as the kubelet does.
 * @param board for the defaults that follow from it
 */
export function applyConfigurationDefaults(
  given: ConfigurationInput,
  hostName: string,
  board: BoardDefaults,
  table: FieldTable = CONFIGURATION_FIELDS,
) {
  const complete = withDefaults(given, table) as Complete<Fields>;
  return {
    ...complete,
    nodeName: given.nodeName || hostName.trim().toLowerCase(),
    enableServer: given.enableServer ?? board.enableServer,
    podPidsLimit: Math.max(-1, complete.podPidsLimit),
    nodeStatusReportFrequency: given.nodeStatusReportFrequency || given.nodeStatusUpdateFrequency || seconds(300),
    serializeImagePulls: given.serializeImagePulls ?? (given.maxParallelImagePulls ?? 1) < 2,
    evictionHard:
      given.evictionHard === undefined || complete.mergeDefaultEvictionSettings
        ? { ...board.evictionHard, ...given.evictionHard }
        : given.evictionHard,
    page: { ...complete.page, enabled: given.page?.enabled ?? board.hasPage },
    kubeReserved: given.kubeReserved ?? (given.systemReserved === undefined ? board.kubeReserved : {}),
    /** Null: this node belongs to no hub. */
    hub: complete.hub ?? null,
  };
}

type Values = Readonly<Record<string, unknown>>;

function withDefaults(given: Values, table: FieldTable): Values {
  const complete: Record<string, unknown> = {};
  for (const [name, field] of Object.entries(table)) {
    const value = given[name];
    if ("fields" in field) {
      if (value !== undefined || field.isOptional !== true)
        complete[name] = withDefaults((value ?? {}) as Values, field.fields);
    } else if ("items" in field) {
      complete[name] = value ?? [];
    } else {
      const isEmpty = value === undefined || (field.takesEmpty !== true && (value === "" || value === 0));
      if (!isEmpty) complete[name] = value;
      else if (field.default !== undefined) complete[name] = field.default;
    }
  }
  return complete;
}
