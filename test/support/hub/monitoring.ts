/** Dashboards, rules and metrics of hub/deploy/monitoring, as tests read them. */
import { readdirSync, readFileSync } from "node:fs";
import { parse } from "yaml";

export const MONITORING = "hub/deploy/monitoring";

export interface DashboardQuery {
  /** `fleet.json: CPU of boards`. */
  readonly place: string;
  readonly query: string;
}

interface Dashboard {
  readonly panels: readonly { readonly title: string; readonly targets: readonly { readonly expr: string }[] }[];
  readonly templating: { readonly list: readonly { readonly name: string; readonly definition?: string }[] };
}

const FILES = readdirSync(`${MONITORING}/dashboards`);
const dashboardOf = (name: string): Dashboard =>
  JSON.parse(readFileSync(`${MONITORING}/dashboards/${name}`, "utf8")) as Dashboard;

/** @param values of the dashboards' variables */
export const dashboardQueries = (values: Readonly<Record<string, string>>): readonly DashboardQuery[] =>
  FILES.flatMap((file) =>
    dashboardOf(file).panels.flatMap(({ title, targets }) =>
      targets.map(({ expr }) => ({
        place: `${file}: ${title}`,
        query: expr.replaceAll(/\$(\w+)/g, (whole, name: string) => values[name] ?? whole),
      })),
    ),
  );

/** The metrics that choose the values of the dashboards' variables. */
export const variableQueries = (): readonly DashboardQuery[] =>
  FILES.flatMap((file) =>
    dashboardOf(file).templating.list.flatMap(({ name, definition }) =>
      definition === undefined ? [] : [{ place: `${file}: ${name}`, query: definition }],
    ),
  );

export const alertQueries = (): readonly DashboardQuery[] => {
  const { groups } = parse(readFileSync(`${MONITORING}/rules.yaml`, "utf8")) as {
    groups: { rules: { alert: string; expr: string }[] }[];
  };
  return groups.flatMap(({ rules }) => rules.map(({ alert, expr }) => ({ place: alert, query: expr })));
};

/** Names that look like metrics: what stands before a `{`, a `[` or an operator, and is no function and no label. */
export function metricsIn(query: string): readonly string[] {
  const bare = query
    .replaceAll(/"(?:[^"\\]|\\.)*"/g, "")
    .replaceAll(/\{[^}]*\}/g, "")
    .replaceAll(/\b(?:by|without|on|ignoring)\s*\([^)]*\)/g, "");
  const names = bare.match(/[a-zA-Z_:][a-zA-Z0-9_:]*(?!\s*\()\b/g) ?? [];
  return [...new Set(names.filter((name) => name.includes("_") && !new RegExp(`${name}\\s*\\(`).test(bare)))];
}
