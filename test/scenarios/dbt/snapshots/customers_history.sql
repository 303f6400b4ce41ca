{% snapshot customers_history %}
{{ config(unique_key='id', strategy='check', check_cols=['country']) }}
select * from {{ ref('customers') }}
{% endsnapshot %}
