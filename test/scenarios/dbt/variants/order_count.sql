{{ config(post_hook={"sql": "CALL fdl_push('lake', message := 'order_count is new')", "transaction": false}) }}

select count(*) as orders from {{ ref('stg_orders') }}
