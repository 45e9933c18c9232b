/** `events` of core/v1. */
import { type FieldError, invalidValue, requiredValue } from "../api/field-errors.ts";
import { fieldAt, mappingAt, setDefault, textAt } from "../api/object-fields.ts";
import type { ApiObject, PrinterColumn, ResourceDefinition } from "../api/resource-definition.ts";
import { ageOf } from "../printing/age.ts";
import { column, nameColumn, wideColumn } from "../printing/columns.ts";

/** Kubernetes' default of `--event-ttl`. */
const EVENT_TTL_SECONDS = 3600;

const firstSeen = (event: ApiObject): string => textAt(event, "firstTimestamp") || textAt(event, "eventTime");
const lastSeen = (event: ApiObject): string =>
  textAt(event, "series", "lastObservedTime") || textAt(event, "lastTimestamp") || firstSeen(event);

function objectText(event: ApiObject): string {
  const kind = textAt(event, "involvedObject", "kind").toLowerCase();
  const name = textAt(event, "involvedObject", "name");
  return name === "" ? kind : `${kind}/${name}`;
}

function sourceText(event: ApiObject): string {
  const component = textAt(event, "source", "component") || textAt(event, "reportingComponent");
  const host =
    textAt(event, "source", "host") ||
    (textAt(event, "source", "component") === "" ? textAt(event, "reportingInstance") : "");
  return host === "" ? component : `${component}, ${host}`;
}

const countOf = (event: ApiObject): number =>
  Number(fieldAt(event, "series", "count") ?? 0) || Number(fieldAt(event, "count") ?? 0) || 1;

const EVENT_COLUMNS: readonly PrinterColumn[] = [
  column("Last Seen", (event, now) => ageOf(lastSeen(event), now)),
  column("Type", (event) => textAt(event, "type")),
  column("Reason", (event) => textAt(event, "reason")),
  column("Object", objectText),
  wideColumn("Subobject", (event) => textAt(event, "involvedObject", "fieldPath")),
  wideColumn("Source", sourceText),
  column("Message", (event) => textAt(event, "message").trim()),
  wideColumn("First Seen", (event, now) => ageOf(firstSeen(event), now)),
  wideColumn("Count", countOf, "integer"),
  { ...nameColumn, priority: 1 },
];

const INVOLVED = ["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"];

/** Lengths of Kubernetes' ValidateEvent. */
const MAX_MESSAGE = 1024;
const MAX_REASON = 128;

/** As Kubernetes 1.34: an event with `eventTime` is of the newer kind, whose texts are required and limited. */
function validateEvent(event: ApiObject): readonly FieldError[] {
  const isNew = textAt(event, "eventTime") !== "";
  const namespace = textAt(mappingAt(event, "involvedObject"), "namespace");
  const own = event.metadata.namespace ?? "";
  // An object without a namespace has its events in `default`.
  const isRight = namespace === own || (namespace === "" && ["default", "kube-system", ""].includes(own));
  const errors: FieldError[] = isRight
    ? []
    : [invalidValue("involvedObject.namespace", namespace, "does not match event.namespace")];
  const limit = (field: string, most: number): void => {
    if (textAt(event, field).length <= most) return;
    errors.push(invalidValue(field, "", `can have at most ${most} characters`));
  };
  for (const field of ["reportingComponent", "reportingInstance", "action", "reason"]) {
    if (isNew && textAt(event, field) === "") errors.push(requiredValue(field));
    if (isNew) limit(field, MAX_REASON);
  }
  if (isNew) limit("message", MAX_MESSAGE);
  return errors;
}

export const eventResource: ResourceDefinition = {
  group: "",
  version: "v1",
  plural: "events",
  singular: "event",
  kind: "Event",
  namespaced: true,
  shortNames: ["ev"],
  model: "CoreV1Event",
  columns: EVENT_COLUMNS,
  selectableFields: {
    ...Object.fromEntries(
      INVOLVED.map((name) => [`involvedObject.${name}`, (event: ApiObject) => textAt(event, "involvedObject", name)]),
    ),
    reason: (event) => textAt(event, "reason"),
    reportingComponent: (event) => textAt(event, "reportingComponent"),
    source: (event) => textAt(event, "source", "component") || textAt(event, "reportingComponent"),
    type: (event) => textAt(event, "type"),
  },
  ttlSeconds: EVENT_TTL_SECONDS,
  strategy: {
    createOnUpdate: true,
    default(event) {
      setDefault(event, "type", "Normal");
    },
    validate: validateEvent,
  },
};
