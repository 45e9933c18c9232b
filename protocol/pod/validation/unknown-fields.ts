/**
 * Fields of a manifest that Pod v1 does not have, as Kubernetes' strict field validation (`fieldValidation: Warn`)
 * names them.
 */
import type * as z from "zod/mini";
import type { FieldProblem } from "../../kubernetes/field-problems.ts";
import { nearestName } from "../../kubernetes/nearest-name.ts";
import { childPath } from "../../kubernetes/plain-data.ts";
import { podSchema } from "../pod.ts";

/** Bounds the report: a pod with more unknown fields is a document of another kind. */
const MAX_REPORTED = 20;
/** Fields and list items read of one pod: as many as a pod may have values (`POD_LIMITS`). */
const MAX_VISITED = 100_000;

/** The parts of a schema that are needed to follow a value through it. */
interface SchemaDef {
  readonly type: string;
  readonly shape?: Readonly<Record<string, z.core.$ZodType>>;
  readonly element?: z.core.$ZodType;
  readonly innerType?: z.core.$ZodType;
}

const defOf = (schema: z.core.$ZodType): SchemaDef => schema._zod.def as unknown as SchemaDef;

const POD_FIELDS = defOf(podSchema).shape;

/**
 * @param pod as it was written
 * @param path of the pod in its document
 * @returns in the order of the text; `status` is not read
 */
export function unknownPodFields(pod: unknown, path = ""): readonly FieldProblem[] {
  const search = new UnknownFieldSearch();
  search.visit(podSchema, pod, path);
  return search.found;
}

class UnknownFieldSearch {
  readonly found: FieldProblem[] = [];
  #visited = 0;

  visit(schema: z.core.$ZodType, value: unknown, path: string): void {
    this.#visited += 1;
    if (this.#visited > MAX_VISITED || this.found.length >= MAX_REPORTED) return;
    const { shape, element, innerType } = defOf(schema);
    if (innerType !== undefined) {
      // Optional, or with a default.
      this.visit(innerType, value, path);
    } else if (Array.isArray(value)) {
      if (element !== undefined)
        for (const [index, each] of value.entries()) this.visit(element, each, `${path}[${index}]`);
    } else if (shape !== undefined && typeof value === "object" && value !== null) {
      for (const [name, each] of Object.entries(value)) this.#visitField(shape, name, each, path);
    }
  }

  #visitField(shape: NonNullable<SchemaDef["shape"]>, name: string, value: unknown, parent: string): void {
    if (shape === POD_FIELDS && name === "status") return;
    const path = childPath(parent, name);
    const schema = Object.hasOwn(shape, name) ? shape[name] : undefined;
    if (schema !== undefined) this.visit(schema, value, path);
    else if (this.found.length < MAX_REPORTED) this.found.push({ path, message: messageOf(path, name, shape) });
  }
}

function messageOf(path: string, name: string, shape: object): string {
  const near = nearestName(name, Object.keys(shape));
  return `unknown field ${JSON.stringify(path)}${near === undefined ? "" : `, did you mean ${JSON.stringify(near)}?`}`;
}
