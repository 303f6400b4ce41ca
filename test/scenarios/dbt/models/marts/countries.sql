select country, count(*) as customers
from {{ ref('stg_customers') }}
group by country
