from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("inquiries", "0005_exports")]

    operations = [
        migrations.AddField(
            model_name="requestlog",
            name="lengths",
            field=models.JSONField(null=True),
        ),
    ]
