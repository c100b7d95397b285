"""One small job that touches what every Spindle session touches; `install.py` keeps the classes it loads."""

from __future__ import annotations

import tempfile

from spindle import config
from spindle.defaults import default_layer
from spindle.session import open_session

settings = config.build([default_layer()])
spark = open_session("warm-up", settings.spark, master="local[1]")
with tempfile.TemporaryDirectory() as folder:
    spark.range(10).selectExpr("id", "id % 2 AS bucket").write.format("delta").partitionBy("bucket").save(f"{folder}/t")
    spark.range(5, 15).selectExpr("id", "id % 2 AS bucket").createOrReplaceTempView("s")
    spark.sql(
        f"MERGE INTO delta.`{folder}/t` t USING s ON t.bucket IN (0, 1) AND t.id = s.id AND t.bucket = s.bucket "
        "WHEN MATCHED THEN UPDATE SET id = s.id WHEN NOT MATCHED THEN INSERT *"
    )
    spark.read.format("delta").load(f"{folder}/t").mapInArrow(lambda batches: batches, "id LONG, bucket LONG").collect()
spark.stop()
