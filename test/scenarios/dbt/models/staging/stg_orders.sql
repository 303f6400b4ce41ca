select id as order_id, customer_id, ordered::date as ordered, amount::decimal(12, 2) as amount
from {{ ref('orders') }}
