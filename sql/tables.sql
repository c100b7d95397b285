-- Which tables are there?
-- Read first: spark-sql --properties-file conf/spark-defaults.conf -d warehouse=DIR -i sql/tables.sql -f sql/host_report.sql
CREATE OR REPLACE TEMPORARY VIEW urls AS SELECT * FROM delta.`${warehouse}/urls`;
CREATE OR REPLACE TEMPORARY VIEW hosts AS SELECT * FROM delta.`${warehouse}/hosts`;
CREATE OR REPLACE TEMPORARY VIEW inbox AS SELECT * FROM delta.`${warehouse}/inbox`;
CREATE OR REPLACE TEMPORARY VIEW robots AS SELECT * FROM delta.`${warehouse}/robots`;
CREATE OR REPLACE TEMPORARY VIEW segments AS SELECT * FROM delta.`${warehouse}/segments`;
CREATE OR REPLACE TEMPORARY VIEW fetchlist AS SELECT * FROM delta.`${warehouse}/fetchlist`;
CREATE OR REPLACE TEMPORARY VIEW fetches AS SELECT * FROM delta.`${warehouse}/fetches`;
CREATE OR REPLACE TEMPORARY VIEW pages AS SELECT * FROM delta.`${warehouse}/pages`;
CREATE OR REPLACE TEMPORARY VIEW links AS SELECT * FROM delta.`${warehouse}/links`;
CREATE OR REPLACE TEMPORARY VIEW fingerprints AS SELECT * FROM delta.`${warehouse}/fingerprints`;
CREATE OR REPLACE TEMPORARY VIEW copies AS SELECT * FROM delta.`${warehouse}/copies`;
CREATE OR REPLACE TEMPORARY VIEW clusters AS SELECT * FROM delta.`${warehouse}/clusters`;
CREATE OR REPLACE TEMPORARY VIEW traps AS SELECT * FROM delta.`${warehouse}/traps`;
CREATE OR REPLACE TEMPORARY VIEW seen AS SELECT * FROM delta.`${warehouse}/seen`;
CREATE OR REPLACE TEMPORARY VIEW events AS SELECT * FROM delta.`${warehouse}/events`;
CREATE OR REPLACE TEMPORARY VIEW metrics AS SELECT * FROM delta.`${warehouse}/metrics`;
