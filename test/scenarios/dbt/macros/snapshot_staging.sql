{# dbt-duckdb 1.10 makes a snapshot's staging table in the database of `path`, and DuckDB lets a transaction write to one database only.
   A temporary table is in neither. #}
{% macro build_snapshot_staging_table(strategy, sql, target_relation) %}
  {% set staging = make_temp_relation(target_relation) %}
  {% call statement('build_snapshot_staging_relation') %}
    {{ create_table_as(True, staging, snapshot_staging_table(strategy, sql, target_relation)) }}
  {% endcall %}
  {{ return(staging) }}
{% endmacro %}
