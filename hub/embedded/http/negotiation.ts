/** Chooses the form of an answer by the client's Accept header. */

export type ObjectForm =
  | { readonly kind: "object" }
  | { readonly kind: "table"; readonly version: "v1" | "v1beta1" }
  | { readonly kind: "partial"; readonly version: "v1" | "v1beta1" };

export interface MediaRange {
  /** `application/json`. */
  readonly type: string;
  readonly params: Readonly<Record<string, string>>;
  readonly quality: number;
}

/** A header that is longer than this many ranges is no client's. */
const MAX_RANGES = 64;

/** By quality, then in the order given. */
export function parseAccept(header: string | undefined): readonly MediaRange[] {
  if (header === undefined || header.trim() === "") return [{ type: "*/*", params: {}, quality: 1 }];
  const ranges = header
    .split(",")
    .slice(0, MAX_RANGES)
    .map((part): MediaRange => {
      const [type = "", ...rest] = part.split(";").map((each) => each.trim());
      const params = Object.fromEntries(
        rest.map((each): [string, string] => {
          const [key = "", ...value] = each.split("=");
          return [key.trim().toLowerCase(), value.join("=").trim().replace(/^"|"$/g, "")];
        }),
      );
      const quality = Number(params.q ?? 1);
      return { type: type.toLowerCase(), params, quality: Number.isFinite(quality) ? quality : 0 };
    });
  return ranges.filter(({ quality }) => quality > 0).toSorted((a, b) => b.quality - a.quality);
}

const JSON_TYPES: ReadonlySet<string> = new Set(["application/json", "application/*", "*/*", "text/*"]);
const YAML_TYPES: ReadonlySet<string> = new Set(["application/yaml"]);

export interface Negotiated {
  readonly form: ObjectForm;
  readonly encoding: "json" | "yaml";
}

const version = (text: string | undefined): "v1" | "v1beta1" | undefined =>
  text === "v1" || text === "v1beta1" ? text : undefined;

/** Undefined: nothing of it can be given (406). */
export function negotiate(header: string | undefined): Negotiated | undefined {
  for (const { type, params } of parseAccept(header)) {
    const encoding = JSON_TYPES.has(type) ? "json" : YAML_TYPES.has(type) ? "yaml" : undefined;
    if (encoding === undefined) continue;
    const { as, g, v } = params;
    if (as === undefined) return { form: { kind: "object" }, encoding };
    const wanted = version(v);
    if (g !== "meta.k8s.io" || wanted === undefined) continue;
    if (as === "Table") return { form: { kind: "table", version: wanted }, encoding };
    if (as === "PartialObjectMetadata" || as === "PartialObjectMetadataList") {
      return { form: { kind: "partial", version: wanted }, encoding };
    }
  }
  return undefined;
}

export const NOT_ACCEPTABLE =
  "only the following media types are accepted: application/json, application/yaml, application/json;as=Table;g=meta.k8s.io;v=v1, application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
