{# Publishing from dbt's on-run-end hooks. Each hook is a statement that dbt runs itself, so that a commit or a push that is refused
   is a failed hook: dbt says why, skips the hooks after it and exits with 1. #}

{# What speaks against publishing this run: a list, empty when nothing does. Only dbt build and dbt run publish: what dbt test or dbt
   seed has looked at may be what a failed run left. #}
{% macro fdl_in_the_way(results) %}
  {% set reasons = [] %}
  {% if flags.WHICH not in ['build', 'run'] %}
    {% do reasons.append('this is dbt ' ~ flags.WHICH) %}
  {% elif not var('fdl_publish', true) %}
    {% do reasons.append('fdl_publish is false') %}
  {% endif %}
  {% for result in results if result.status not in ['success', 'pass', 'warn', 'no-op'] %}
    {% do reasons.append(result.node.name ~ ' (' ~ result.status ~ ')') %}
  {% endfor %}
  {{ return(reasons) }}
{% endmacro %}

{# What the working catalog holds becomes a version beside it, unless that is what its parent holds. #}
{% macro fdl_commit(results, lake, message) %}
  {% if execute %}
    {% set reasons = fdl_in_the_way(results) %}
    {% if reasons %}
      {% do log('fdl: nothing is published: ' ~ reasons | join(', '), info=true) %}
    {% else %}
      create or replace temp table fdl_committed as
      from fdl_commit({{ fdl_quoted(lake) }}, message := {{ fdl_quoted(message) }})
    {% endif %}
  {% endif %}
{% endmacro %}

{# The versions beside the working catalog go to the branch that was checked out. #}
{% macro fdl_push(results, lake) %}
  {% if execute and not fdl_in_the_way(results) %}
    create or replace temp table fdl_pushed as
    from fdl_push({{ fdl_quoted(lake) }})
  {% endif %}
{% endmacro %}

{# Both in one hook. #}
{% macro fdl_commit_and_push(results, lake, message) %}
  {{ fdl_commit(results, lake, message) }};
  {{ fdl_push(results, lake) }}
{% endmacro %}

{# Says what the hooks before it did. A note becomes a warning of dbt's. #}
{% macro fdl_report(results) %}
  {% if execute and not fdl_in_the_way(results) %}
    {% set made = run_query('from temp.fdl_committed').rows[0] %}
    {% set sent = run_query('from temp.fdl_pushed').rows[0] %}
    {% if made['committed'] %}
      {% do log('fdl: committed ' ~ made['version'] ~ ', tables changed: ' ~ made['tables_changed'], info=true) %}
    {% else %}
      {% do log('fdl: nothing has changed since ' ~ made['version'], info=true) %}
    {% endif %}
    {% do log('fdl: ' ~ sent['ref'] ~ ' of ' ~ sent['repository'] ~ ': ' ~ sent['outcome'], info=true) %}
    {% for note in [made['note'], sent['note']] if note %}
      {% do exceptions.warn('fdl: ' ~ note) %}
    {% endfor %}
  {% endif %}
{% endmacro %}

{% macro fdl_quoted(text) %}{{ return("'" ~ text | replace("'", "''") ~ "'") }}{% endmacro %}
