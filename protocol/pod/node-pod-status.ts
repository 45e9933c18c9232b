import { isNodeCondition } from "./condition-owners.ts";

type Fields = Readonly<Record<string, unknown>>;

const isFields = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/**
 * A pod's status as its node reports it: without the conditions and fields of others and without nulls, which an API
 * server adds and drops as it likes. The agent sends this form, the hub makes it of what the API server has, and both
 * come to the same base for a delta.
 */
export function nodePodStatus(status: unknown): Fields {
  if (!isFields(status)) return {};
  const { conditions, nominatedNodeName: _name, resize: _resize, ...rest } = status;
  const own = Array.isArray(conditions) ? conditions.filter(isOwnCondition) : [];
  return withoutNulls(own.length === 0 ? rest : { ...rest, conditions: own }) as Fields;
}

const isOwnCondition = (condition: unknown): boolean => {
  if (!isFields(condition)) return false;
  const { type, reason } = condition;
  return typeof type === "string" && isNodeCondition({ type, reason });
};

function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls);
  if (!isFields(value)) return value;
  const kept = Object.entries(value).filter(([, each]) => each !== null && each !== undefined);
  return Object.fromEntries(kept.map(([key, each]) => [key, withoutNulls(each)]));
}
