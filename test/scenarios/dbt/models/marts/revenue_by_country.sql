select country, count(*) as orders, sum(amount) as revenue
from {{ ref('stg_orders') }}
join {{ ref('stg_customers') }} using (customer_id)
group by country
