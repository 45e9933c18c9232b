PRAGMA application_id = 1886152802;
PRAGMA user_version = 1;
CREATE TABLE floors (resource TEXT PRIMARY KEY, revision INTEGER NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO floors VALUES ('secrets', 1);
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
CREATE TABLE meta (name TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES ('revision', 6);
INSERT INTO meta VALUES ('service-account-key', 'key');
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
CREATE INDEX history_resource ON history (resource, revision);
CREATE INDEX objects_expires ON objects (expires) WHERE expires IS NOT NULL;
