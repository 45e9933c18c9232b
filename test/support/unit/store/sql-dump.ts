import Database from "better-sqlite3";

function literal(value: unknown): string {
  if (value === null) return "NULL";
  if (value instanceof Buffer) return `X'${value.toString("hex")}'`;
  return typeof value === "number" ? String(value) : `'${String(value).replaceAll("'", "''")}'`;
}

/** A whole database as SQL, the numbers in its header too; indexes behind the rows. */
export function dumpDatabase(path: string): string {
  const database = new Database(path, { readonly: true });
  const schema = database
    .prepare<[], { type: string; name: string; sql: string }>(
      "SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type DESC, name",
    )
    .all();
  const lines = ["application_id", "user_version"].map(
    (name) => `PRAGMA ${name} = ${database.pragma(name, { simple: true })};`,
  );
  for (const { type, name, sql } of schema) {
    lines.push(`${sql};`);
    if (type !== "table") continue;
    const rows = database.prepare<[], unknown[]>(`SELECT * FROM ${name}`).raw().all() as unknown[][];
    for (const row of rows) lines.push(`INSERT INTO ${name} VALUES (${row.map(literal).join(", ")});`);
  }
  database.close();
  return `${lines.join("\n")}\n`;
}
