{{ config(post_hook="CALL fdl_push('lake', message := 'order_count is new')") }}

select count(*) as orders from {{ ref('stg_orders') }}
