PRAGMA application_id = 1886152802;
PRAGMA user_version = 2;
CREATE TABLE floors (resource TEXT PRIMARY KEY, revision INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO floors VALUES ('nodes', 1);
CREATE TABLE history (
    revision INTEGER PRIMARY KEY,
    resource TEXT NOT NULL,
    type TEXT NOT NULL,
    namespace TEXT NOT NULL,
    at INTEGER NOT NULL,
    body TEXT NOT NULL,
    previous TEXT
  ) STRICT;
INSERT INTO history VALUES (2, 'configmaps', 'ADDED', 'default', 1767225600000, '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kept","namespace":"default","resourceVersion":"2"},"data":{"value":"it''s"}}', NULL);
INSERT INTO history VALUES (3, 'configmaps', 'ADDED', 'default', 1767225600000, '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"gone","namespace":"default","resourceVersion":"3"},"data":{"value":""}}', NULL);
INSERT INTO history VALUES (4, 'configmaps', 'ADDED', 'default', 1767225600000, '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"other","namespace":"default","resourceVersion":"4"},"data":{"value":""}}', NULL);
INSERT INTO history VALUES (5, 'configmaps', 'MODIFIED', 'default', 1767225600000, '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kept","namespace":"default","resourceVersion":"5"},"data":{"value":"é"}}', '{}');
INSERT INTO history VALUES (6, 'configmaps', 'DELETED', 'default', 1767225600000, '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"gone","namespace":"default","resourceVersion":"6"},"data":{"value":""}}', NULL);
INSERT INTO history VALUES (7, 'secrets', 'ADDED', 'default', 1767225600000, 'sealed:1:4210dca3:svK8Saak2A5ZsvifnjRzDAxszlIySEUr4o1+irVj7nJAii3R0p9KN6/p7HQDQ9bTJD+hYOr09IRV9OTp0ECNQR8dO8ot0sRzwNgyExbUMOITIQKcIl9VGOnvSJGLDi/0XYnRWHs8/Nm2lgTBzh8QH0glJN8n4fvxciD2/1oO9WQxAovBJiPhFTRFkV3qXHOsf+E=', NULL);
CREATE TABLE meta (name TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES ('data-keys', '[{"id":"4210dca3","root":"0d90c5c8","sealed":"GDwlhIEyV5HGTBiLZSmhSP4agpgbpfmUBJmg1SM3GAR7t7XWkE5zJMCx33ZK+r+1MzBFHVZLh7ruUqr7","madeAtMs":1767225600000,"fromRevision":1}]');
INSERT INTO meta VALUES ('fleet', 'af4de5fb-9344-409a-a62f-7f012037c8c5');
INSERT INTO meta VALUES ('plain-text-gone', '1');
INSERT INTO meta VALUES ('revision', 7);
INSERT INTO meta VALUES ('service-account-key', 'sealed:1:4210dca3:4S1IGemv6WP/Wm0bcSHkGeVy7qVlbPFWyDjdL8XsQA==');
INSERT INTO meta VALUES ('starts', 1);
CREATE TABLE objects (
    id INTEGER PRIMARY KEY,
    resource TEXT NOT NULL,
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    revision INTEGER NOT NULL,
    expires INTEGER,
    body TEXT NOT NULL,
    UNIQUE (resource, namespace, name)
  ) STRICT;
INSERT INTO objects VALUES (1, 'configmaps', 'default', 'kept', 5, NULL, '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kept","namespace":"default","resourceVersion":"5"},"data":{"value":"é"}}');
INSERT INTO objects VALUES (3, 'configmaps', 'default', 'other', 4, 1, '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"other","namespace":"default","resourceVersion":"4"},"data":{"value":""}}');
INSERT INTO objects VALUES (4, 'secrets', 'default', 'sealed', 7, NULL, 'sealed:1:4210dca3:G5p7FJopPaEXLv/ZY4DMdklTBXtECSwV4au98CSFAe14+GnHY7H7ht0iccshfYuIKKiOhfHXge5zdm5KBzmhcJXr+Mdf7WS7TWQoewjSYKaQbIPYIB5TmL/FmWDPWnBYSpM4JClHNnU0jXwuLA3eJ4q0we2KfVnojsk2azoCtJKAdmpHbIKopKtNZGyGZswmaVo=');
CREATE INDEX history_resource ON history (resource, revision);
CREATE INDEX objects_expires ON objects (expires) WHERE expires IS NOT NULL;
